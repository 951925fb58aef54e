package plan

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"vapp.dev/schema"
)

// Row is the result for one device of a table of what fits where. Numbers are 0 if the profile
// does not fit.
type Row struct {
	Device  string `json:"device"`
	Total   int64  `json:"total_bytes"`
	Fits    bool   `json:"fits"`
	Weights int64  `json:"weights_bytes"`
	KV      int64  `json:"kv_bytes"`
	Longest int    `json:"longest"` // tokens: the longest sequence that fits, whatever maxModelLen is
	At4K    int    `json:"sequences_4k"`
	At32K   int    `json:"sequences_32k"`
	// What limits each number, a Limit; "" if nothing fits.
	LimitLongest Limit `json:"limit_longest"`
	Limit4K      Limit `json:"limit_4k"`
	Limit32K     Limit `json:"limit_32k"`
	LimitMax     Limit `json:"limit_max"`
	// AtMax is for the profile's maxModelLen, or for Longest if that is auto.
	AtMax  int    `json:"sequences_max"`
	Max    int    `json:"max_model_len"`
	Reason string `json:"reason"` // why it does not fit, "" if it does
	// Parallel is the change with which it fits on the fewest devices like this one, Devices of them:
	// "parallel.tensor: 2". "" and the profile's number of devices if it fits, or if no number up to 8 is enough.
	Parallel string   `json:"parallel"`
	Devices  int      `json:"devices"`
	PlanOnly []string `json:"plan_only"`
}

// Limit is what limits a number of a Row.
type Limit string

// The limits.
const (
	ByMemory      Limit = "memory"
	ByMaxNumSeqs  Limit = "maxNumSeqs"          // the KV cache holds more
	ByMaxModelLen Limit = "maxModelLen"         // the profile allows no longer sequences
	ByModel       Limit = "model"               // the model allows no longer sequences
	ByStep        Limit = "maxNumBatchedTokens" // a prompt must fit one step without chunked prefill
)

// longestLimit returns what limits the longest sequence.
func (w resolved) longestLimit(longest int) Limit {
	switch {
	case longest >= w.in.Model.Config.MaxPositionEmbeddings:
		return ByModel
	case !w.options.ChunkedPrefill && longest >= w.options.MaxNumBatchedTokens:
		return ByStep
	}
	return ByMemory
}

// limitAt returns what limits the sequences of a length.
func (p *Plan) limitAt(tokens int, longest Limit) Limit {
	switch {
	case tokens > p.Options.MaxModelLen && !p.autoLen:
		return ByMaxModelLen
	case tokens > p.Options.MaxModelLen:
		return longest
	case p.sequences(tokens) > int64(p.Options.MaxNumSeqs):
		return ByMaxNumSeqs
	}
	return ByMemory
}

// matrix is the JSON form of the table.
type matrix struct {
	Version int    `json:"version"`
	Profile string `json:"profile"`
	Rows    []Row  `json:"rows"`
}

// Rows writes the table as indented JSON.
func Rows(w io.Writer, profile string, rows []Row) error {
	return writeIndented(w, matrix{Version, profile, rows})
}

// FitOn plans in for its device and returns what fits, without searching for changes that would
// fit. name is the device's name in the catalogue. It fails only if the profile is invalid.
func FitOn(in Inputs, name string) (Row, error) {
	r := Row{Device: name, Total: in.Facts.TotalBytes, PlanOnly: []string{}}
	w, err := resolve(in)
	if err != nil {
		return r, err
	}
	r.Devices = ranks(w.in.Model.Source.Build)
	s, err := w.solve()
	var short *shortError
	if err != nil && !errors.As(err, &short) {
		return r, err
	}
	if err != nil {
		r.Weights = short.ledger.Bytes("weights")
		r.Reason = Size(short.need-short.have) + " missing: " + w.doesNotFit(short).What
		r.onSeveral(w, name)
	} else if err := r.take(w, s); err != nil {
		return r, err
	}
	if w.options.MaxModelLen > 0 {
		w.options.MaxModelLen = 0
		if s, err = w.solve(); err != nil {
			return r, nil // nothing fits: Reason has the missing bytes
		}
	}
	if r.Longest = s.options.MaxModelLen; r.Longest > 0 {
		r.LimitLongest = w.longestLimit(r.Longest)
	}
	if r.KV > 0 || r.Longest == 0 {
		return r, nil
	}
	p, err := w.plan(s)
	if err != nil {
		return r, err
	}
	r.fill(p, w)
	r.AtMax, r.LimitMax = 0, ""
	return r, nil
}

// onSeveral fills in the fewest devices on which the profile fits.
func (r *Row) onSeveral(w resolved, name string) {
	if !w.onGPU() {
		return
	}
	weights := w.weightBytes() * int64(r.Devices)
	for n := r.Devices + 1; n <= mostRanks; n++ {
		if weights/int64(n) > w.limit() {
			continue // of the weights alone each has too many
		}
		for _, v := range w.parallelForms(n) {
			if v.resolved.fits() {
				r.Devices, r.Parallel = n, v.Path+": "+v.New
				r.Reason += fmt.Sprintf("; fits on %d × %s (%s)", n, name, r.Parallel)
				return
			}
		}
	}
}

// take fills the row in with what fits, and checks the contracts.
func (r *Row) take(w resolved, s solution) error {
	p, err := w.plan(s)
	if err != nil {
		return err
	}
	r.fill(p, w)
	r.Fits = true
	e, err := w.firstUnmet(p)
	if e != nil {
		r.Fits, r.Reason = false, e.Brief()
	}
	return err
}

func (r *Row) fill(p *Plan, w resolved) {
	r.Weights, r.KV, r.Max = p.Ledger.Bytes("weights"), p.Ledger.Bytes("kv"), p.Options.MaxModelLen
	r.At4K, r.At32K, r.AtMax = p.at(4<<10), p.at(32<<10), p.at(p.Options.MaxModelLen)
	longest := w.longestLimit(p.Options.MaxModelLen)
	r.Limit4K, r.Limit32K, r.LimitMax = p.limitAt(4<<10, longest), p.limitAt(32<<10, longest), p.limitAt(p.Options.MaxModelLen, longest)
	r.PlanOnly = append([]string{}, p.PlanOnly...)
}

// at returns how many sequences of a length fit and may run at once, 0 above maxModelLen.
func (p *Plan) at(tokens int) int {
	if tokens > p.Options.MaxModelLen {
		return 0
	}
	return min(int(p.sequences(tokens)), p.Options.MaxNumSeqs)
}

// Default returns a profile with the given model and defaults for everything else.
func Default(source string) (*schema.Profile, error) {
	return schema.Parse("default.cue", []byte(
		"import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"fit\"\n\tmodel: source: "+strconv.Quote(source)+"\n}\n"))
}
