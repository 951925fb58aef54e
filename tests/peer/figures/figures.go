// Package figures holds the results of a comparison with other engines: it parses the
// output of each side's tools, stores it, and writes the report with the targets. It must not
// run tools or import packages of vapp.
// Start reading at Part in figures.go, Report in report.go and Index in index.go.
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
	VappFavor = "vapp, favor decode" // cpu.favor: "decode", on machines with AMX
	Llama     = "llama.cpp"
	LlamaBest = "llama.cpp, tuned"
	Torch     = "PyTorch"
	Machine   = "limits"
)

// Keys of figures. Rates are in tokens per second, times in milliseconds, sizes in bytes,
// limits in bytes or operations per second.
const (
	Prefill512  = "prefill 512"
	Prefill2048 = "prefill 2048"
	Decode      = "decode"
	Sixteen     = "16 streams"
	Peak        = "peak"
	Planned     = "planned"
	Arenas      = "arenas off"        // bytes used in addition to the planned ones
	DecodeLimit = "decode limit"      // tokens per second at the bandwidth of the same run
	MatrixLimit = "matrix limit"      // prompt tokens per second at the register rate of the same run
	PromptOps   = "prompt operations" // per token
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
	Start       = "start" // seconds until the model is loaded
	ServerPeak  = "server peak"
	ServerShare = "server share" // percent of the CPU time at 64 streams
	// The rate of 16 streams at the machine's limit, and the time until the last of them has
	// its first token.
	SixteenLimit = "16 streams limit"
	FirstLimit   = "first token limit"
	// Prefixes of the keys of the plan's lines and of the parts of the server's share.
	Item       = "item "
	ServerPart = "server: "
)

// Values holds figures by key.
type Values map[string]float64

// Run is one run of a side.
type Run struct {
	Side    string   `json:"side"`
	Command []string `json:"command"`
	Seconds float64  `json:"seconds"`
	Foreign float64  `json:"foreign"` // share of all CPU time that other processes used meanwhile, including stolen time
	Values  Values   `json:"values"`
	Steps   []Step   `json:"steps,omitempty"` // the times of ops in vapp's steps
	Turns   bool     `json:"turns,omitempty"` // a resident program; its figures are in Part.Turns
}

// Part holds the measurements of one model file, or of one topic.
type Part struct {
	Name   string    `json:"name"`
	Date   time.Time `json:"date"`
	Took   float64   `json:"took"` // total seconds
	Rounds int       `json:"rounds"`
	Notes  []string  `json:"notes,omitempty"` // what was not measured, with the reason
	Runs   []Run     `json:"runs"`
	Turns  []Turn    `json:"turns,omitempty"` // of decoding, in their order; they replace runs of it
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

// Parts holds the measured parts by name.
type Parts map[string]Part

// Load reads the saved parts with these names; an absent one was not measured.
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

// Stat is the median and the range of some runs.
type Stat struct {
	Median, Least, Most float64
	Runs                int
}

// Stat returns the statistics of a side's runs, or of its turns of decoding if there are
// any; the zero Stat if there are none.
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

// middle returns the median of sorted values.
func middle(v []float64) float64 {
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// best returns the Stat of the side with the largest median.
func (p Part) best(key string, sides ...string) Stat {
	var out Stat
	for _, s := range sides {
		if x := p.Stat(s, key); x.Median > out.Median {
			out = x
		}
	}
	return out
}

// share returns the median of the shares that each run or turn reached of its own limit; if the limit
// is from other runs, the ratio of the medians.
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
