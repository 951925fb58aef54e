package plan

import (
	"errors"
	"io"
	"strconv"

	"vapp.dev/schema"
)

// Row is one device of a matrix of what fits where. Numbers are 0 where it does
// not fit.
type Row struct {
	Device  string `json:"device"`
	Total   int64  `json:"total_bytes"`
	Fits    bool   `json:"fits"`
	Weights int64  `json:"weights_bytes"`
	KV      int64  `json:"kv_bytes"`
	Longest int    `json:"longest"` // tokens: the longest sequence that fits, whatever maxModelLen says
	At4K    int    `json:"sequences_4k"`
	At32K   int    `json:"sequences_32k"`
	// AtMax is of the profile's maxModelLen, or of Longest where that is auto.
	AtMax    int      `json:"sequences_max"`
	Max      int      `json:"max_model_len"`
	Reason   string   `json:"reason"` // why it does not fit, "" where it does
	PlanOnly []string `json:"plan_only"`
}

// matrix is the JSON form of rows.
type matrix struct {
	Version int    `json:"version"`
	Profile string `json:"profile"`
	Rows    []Row  `json:"rows"`
}

// Rows prints a matrix for a program, indented.
func Rows(w io.Writer, profile string, rows []Row) error {
	return indented(w, matrix{Version, profile, rows})
}

// FitOn plans in for its device and says what fits. Name is the device's, as the
// catalogue has it. It errs only where the profile itself is wrong.
func FitOn(in Inputs, name string) (Row, error) {
	r := Row{Device: name, Total: in.Facts.TotalBytes, PlanOnly: []string{}}
	p, err := Make(in)
	auto := *in.Profile
	auto.MaxModelLen, auto.Require = schema.Auto, nil
	var short *DoesNotFitError
	var contract *ContractError
	switch {
	case err == nil:
		r.fill(p)
		r.Fits = true
	case errors.As(err, &short):
		r.Reason = Size(short.Missing) + " missing: " + short.What
	case errors.As(err, &contract):
		r.Reason = contract.Brief()
	default:
		return r, err
	}
	in.Profile = &auto
	long, err := Make(in)
	if err != nil {
		return r, nil // nothing fits: Reason says by how much
	}
	if r.Longest = long.Options.MaxModelLen; !r.Fits {
		r.fill(long)
		r.AtMax = 0
	}
	return r, nil
}

func (r *Row) fill(p *Plan) {
	r.Weights, r.KV, r.Max = p.Ledger.Bytes("weights"), p.Ledger.Bytes("kv"), p.Options.MaxModelLen
	r.At4K, r.At32K, r.AtMax = p.at(4<<10), p.at(32<<10), p.at(p.Options.MaxModelLen)
	r.PlanOnly = append([]string{}, p.PlanOnly...)
}

// at is how many sequences of a length fit and may run at once, 0 beyond
// maxModelLen.
func (p *Plan) at(tokens int) int {
	if tokens > p.Options.MaxModelLen {
		return 0
	}
	return min(int(p.sequences(tokens)), p.Options.MaxNumSeqs)
}

// Default is the profile of a model with nothing else said of it.
func Default(source string) (*schema.Profile, error) {
	return schema.Parse("default.cue", []byte(
		"import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"fit\"\n\tmodel: source: "+strconv.Quote(source)+"\n}\n"))
}
