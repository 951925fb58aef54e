// Package figures knows what a comparison with other engines measured: it reads what
// the tools of each side print, keeps it, and holds it against the targets.
package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Sides of the comparison.
const (
	Vapp      = "vapp"
	VappInt8  = "vapp, int8 activations"
	Llama     = "llama.cpp"
	LlamaBest = "llama.cpp, tuned"
	Torch     = "PyTorch"
	Machine   = "limits"
)

// Keys of what is measured. Rates are tokens a second, times milliseconds, sizes
// bytes, limits bytes or operations a second.
const (
	Prefill512  = "prefill 512"
	Prefill2048 = "prefill 2048"
	Decode      = "decode"
	Sixteen     = "16 streams"
	Peak        = "peak"
	Planned     = "planned"
	Arenas      = "arenas off"        // bytes taken beyond those planned
	DecodeLimit = "decode limit"      // tokens a second at the bandwidth of the same run
	MatrixLimit = "matrix limit"      // prompt tokens a second at the rate of the same run, from registers
	PromptOps   = "prompt operations" // of a token
	Bandwidth   = "read bandwidth"
	RateF32     = "f32 rate"
	RateBF16    = "bf16 rate"
	RateInt8    = "int8 rate"
	TilesBF16   = "bf16 tile rate"
	TilesInt8   = "int8 tile rate"
	Served      = "served"
	TTFT        = "ttft p99"
	MedianTTFT  = "ttft median"
	ITL         = "itl p99"
	MedianITL   = "itl median"
	ServerPeak  = "server peak"
	ServerShare = "server share" // percent of the CPU time at 64 streams
	// Of 16 streams at the machine's limit: their rate, and when the last of them has its
	// first token.
	SixteenLimit = "16 streams limit"
	FirstLimit   = "first token limit"
	// Prefixes: a line of the plan, and a part of the server's share.
	Item       = "item "
	ServerPart = "server: "
)

// Values are measured figures by key.
type Values map[string]float64

// Run is one start of one side.
type Run struct {
	Side    string   `json:"side"`
	Command []string `json:"command"`
	Seconds float64  `json:"seconds"`
	Foreign float64  `json:"foreign"` // share of all CPU time that others took meanwhile, stolen time included
	Values  Values   `json:"values"`
	Steps   []Step   `json:"steps,omitempty"` // where vapp's steps spend their time
	Turns   bool     `json:"turns,omitempty"` // it was loaded and ran when it was its turn: what it measured is in Part.Turns
}

// Part is what was measured of one file, or beside all files.
type Part struct {
	Name   string    `json:"name"`
	Date   time.Time `json:"date"`
	Took   float64   `json:"took"` // seconds, all of it
	Rounds int       `json:"rounds"`
	Notes  []string  `json:"notes,omitempty"` // what was not measured, and why
	Runs   []Run     `json:"runs"`
	Turns  []Turn    `json:"turns,omitempty"` // of decoding, in their order; in place of runs of it
}

// Save replaces a part's file in dir.
func (p Part) Save(dir string) error {
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, p.Name+".json")
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Parts are what there is of the comparison, by name.
type Parts map[string]Part

// Load reads what was saved of the named parts; what is absent was not measured.
func Load(dir string, names []string) (Parts, error) {
	out := Parts{}
	for _, n := range names {
		data, err := os.ReadFile(filepath.Join(dir, n+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var p Part
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, fmt.Errorf("%s: %w; measure the part again", filepath.Join(dir, n+".json"), err)
		}
		out[n] = p
	}
	return out, nil
}

// Stat is the median of some runs, and how far they are apart.
type Stat struct {
	Median, Least, Most float64
	Runs                int
}

// Stat of what runs of a side measured, of decoding its turns where there are any; the
// zero Stat if none did.
func (p Part) Stat(side, key string) Stat {
	var v []float64
	switch key {
	case Decode:
		v = p.decodes(side)
	case DecodeLimit:
		v = p.limits(side)
	}
	if len(v) > 0 {
		return stat(v)
	}
	for _, r := range p.Runs {
		if x, ok := r.Values[key]; ok && r.Side == side {
			v = append(v, x)
		}
	}
	return stat(v)
}

// middle of sorted values; of an even number the mean of the two.
func middle(v []float64) float64 {
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// best of the sides' medians: the largest.
func (p Part) best(key string, sides ...string) Stat {
	var out Stat
	for _, s := range sides {
		if x := p.Stat(s, key); x.Median > out.Median {
			out = x
		}
	}
	return out
}

// share is the median of what each run, or turn, reached of its own limit; where the limit is of
// other runs, the medians' ratio.
func (p Part) share(side, key, limit string) float64 {
	if v := p.shares(side); key == Decode && len(v) > 0 {
		return stat(v).Median
	}
	var v []float64
	for _, r := range p.Runs {
		if r.Side == side && r.Values[key] > 0 && r.Values[limit] > 0 {
			v = append(v, r.Values[key]/r.Values[limit])
		}
	}
	if len(v) == 0 {
		return ratio(p.Stat(side, key).Median, p.Stat(side, limit).Median)
	}
	slices.Sort(v)
	return middle(v)
}
