package backend

import "vapp.dev/kernels"

// The values of Settings.Favor.
const (
	// FavorDecode takes, of the kernels of a format, the one that is fastest at one row.
	FavorDecode = "decode"
	// FavorPrefill takes the one that is fastest at the rows of a prompt.
	FavorPrefill = "prefill"
)

// Favored is one of the kernels among which Settings.Favor selects for weights of a format.
type Favored struct {
	Kernel string     `json:"kernel"` // begins a Packed.Kernel
	Favors []string   `json:"favors"` // the settings that take it: "auto", FavorDecode, FavorPrefill
	Taken  bool       `json:"taken"`
	Rate   KernelRate `json:"rate"`
}

// KernelRate is what a kernel of Linear reaches of the machine's limits.
type KernelRate struct {
	Decode  float64 `json:"decode"`  // one row: share of the read bandwidth; 0: unknown
	Prefill float64 `json:"prefill"` // 512 rows: share of the rate of the widest matrix instruction; 0: unknown
	Basis   string  `json:"basis"`   // "measured", "estimated"; "": unknown
}

// Favoring is a Layout that has several kernels for a format.
type Favoring interface {
	Layout
	// Favored lists the kernels among which Settings.Favor selects for matrices stored as f, with
	// estimated rates; nil if there is only one.
	Favored(f kernels.Format) []Favored
}
