package cpu

import (
	"slices"

	"vapp.dev/kernels"
)

// The constants of linear_panel.h; linear.go keeps them equal.
const (
	panelRows = 32  // rows of a weight in a panel
	kBlock    = 128 // inputs unpacked at once
	amxRows   = 16  // rows of x in a tile of AMX
	amxK      = 32  // inputs in a tile of AMX
	amxBlock  = 256 // inputs in a block of AMX
)

// The names of the variants that Linear has, the plainest first.
var linearVariants = []string{"generic", "avx2", "avx512", "amx"}

// SupportedFormats lists the stored formats that a variant's Linear reads; none
// for a variant it does not have.
func SupportedFormats(variant string) []kernels.Format {
	if !slices.Contains(linearVariants, variant) {
		return nil
	}
	return []kernels.Format{kernels.F32, kernels.F16, kernels.BF16, kernels.Q8_0, kernels.Q4_0, kernels.Q4_1}
}

// LinearLayout says how a weight [rows,cols] stored as f is packed for a variant:
// its bytes, a multiple of 64, and the name of the kernel that reads it. ok is
// false where the variant has no kernel for f or cols is not a whole number of
// f's blocks. The layout is described in linear_panel.h.
func LinearLayout(variant string, f kernels.Format, rows, cols int) (packed int64, kernel string, ok bool) {
	elems, _ := f.Block()
	if rows <= 0 || cols <= 0 || cols%elems != 0 || !slices.Contains(SupportedFormats(variant), f) {
		return 0, "", false
	}
	panels := (int64(rows) + panelRows - 1) / panelRows
	return panels * panelBytes(f, cols), "linear." + variant + "." + f.String(), true
}

// LinearWorkspace is the room that a Linear of at most maxRows rows needs on
// threads threads, in bytes: one room shared by all of them and one for each.
// Both are multiples of 64. LinearLayout has accepted variant and f.
func LinearWorkspace(variant string, f kernels.Format, maxRows, in, out, threads int) (shared, perThread int64) {
	perThread = kBlock * panelRows * 4
	switch {
	case variant == "amx" && f != kernels.F32 && f != kernels.F16:
		tiles := (int64(maxRows) + amxRows - 1) / amxRows
		shared = tiles * amxRows * roundUp(int64(in), amxK) * 2
		perThread += amxBlock*panelRows*2 + tiles*amxRows*panelRows*4
	case variant != "generic" && maxRows > 1:
		tile := tileRows(variant)
		shared = roundUp(roundUp(int64(maxRows), tile)*int64(in)*4, 64)
	}
	return shared, perThread
}

// tileRows is the rows of x that a variant with vectors multiplies at once.
func tileRows(variant string) int64 {
	if variant == "avx2" {
		return 6
	}
	return 12
}

// panelBytes is the storage of one panel of cols inputs; BF16 pads odd cols.
func panelBytes(f kernels.Format, cols int) int64 {
	if f == kernels.BF16 {
		cols += cols % 2
	}
	return panelRows * f.Bytes(int64(cols))
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
