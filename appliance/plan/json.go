package plan

import (
	"encoding/json"
	"io"

	"vapp.dev/engine/backend"
)

// Version is the version of the JSON forms (docs/plan-json.md). It changes when the meaning of a
// field changes or a field is removed; new fields do not change it.
const Version = 2

// document is the JSON form of a Plan. Sizes are bytes, lengths tokens.
type document struct {
	Version       int                    `json:"version"`
	Profile       string                 `json:"profile"`
	InMemory      bool                   `json:"in_memory"`
	Overridden    []string               `json:"overridden"`
	Verdict       Verdict                `json:"verdict"`
	Model         Model                  `json:"model"`
	Backend       string                 `json:"backend"`
	Machine       backend.Facts          `json:"machine"`
	Options       options                `json:"options"`
	Devices       int                    `json:"devices"`
	TightestRank  int                    `json:"tightest_rank"`
	Ranks         []RankRow              `json:"ranks"`
	Budget        Budget                 `json:"budget"`
	TotalBytes    int64                  `json:"total_bytes"`
	HostBytes     int64                  `json:"host_bytes"`
	Ledger        Ledger                 `json:"ledger"`
	Capacity      Capacity               `json:"capacity"`
	Choices       []choice               `json:"choices"`
	Kernels       []Kernel               `json:"kernels"`
	Favored       []Favored              `json:"favored"`
	Shapes        []backend.KernelChoice `json:"kernels_by_shape"`
	Converted     []string               `json:"converted"`
	Warnings      []string               `json:"warnings"`
	PlanOnly      []string               `json:"plan_only"`
	GoMemoryLimit int64                  `json:"go_memory_limit"`
	Speed         *Speed                 `json:"speed,omitempty"`
}

// refusal is the JSON form of a plan that is refused: it does not fit, or misses a contract.
type refusal struct {
	Version int      `json:"version"`
	Profile string   `json:"profile"`
	Verdict Verdict  `json:"verdict"`
	Error   string   `json:"error"`
	Missing int64    `json:"missing_bytes"`
	Ledger  Ledger   `json:"ledger"`
	Changes []Change `json:"changes"`
}

// JSON writes the verdict, the ledger if it did fit, and the changes as indented JSON.
func (e *DoesNotFitError) JSON(w io.Writer) error {
	return writeIndented(w, refusal{Version, e.Profile, e.Verdict(), e.Error(), e.Missing, e.Ledger, append([]Change{}, e.Changes...)})
}

// JSON writes the verdict, the plan's ledger and the changes as indented JSON.
func (e *ContractError) JSON(w io.Writer) error {
	r := refusal{Version: Version, Verdict: e.Verdict, Error: e.Error(), Missing: e.Missing, Ledger: Ledger{}, Changes: append([]Change{}, e.Changes...)}
	if e.plan != nil {
		r.Profile, r.Ledger = e.plan.Profile, e.plan.Ledger
	}
	return writeIndented(w, r)
}

// options is engine.Options by the names of the profile, in snake_case.
type options struct {
	MaxModelLen         int     `json:"max_model_len"`
	MaxNumSeqs          int     `json:"max_num_seqs"`
	MaxNumBatchedTokens int     `json:"max_num_batched_tokens"`
	BlockSize           int     `json:"block_size"`
	KVCacheDtype        string  `json:"kv_cache_dtype"`
	KVCacheBytes        int64   `json:"kv_cache_bytes"`
	PrefixCaching       bool    `json:"prefix_caching"`
	ChunkedPrefill      bool    `json:"chunked_prefill"`
	Overlap             bool    `json:"overlap"`
	Policy              string  `json:"policy"`
	ITLTarget           float64 `json:"itl_target_seconds"` // 0: none
	Threads             int     `json:"threads"`            // 0: see choices
	HTTPShare           float64 `json:"http_share"`
	Variant             string  `json:"variant"`     // "": see choices
	Favor               string  `json:"favor"`       // "": auto
	Activations         string  `json:"activations"` // "": see choices
	Drafts              int     `json:"drafts"`
	GraphMode           string  `json:"cudagraph_mode"`
	GraphSizes          []int   `json:"cudagraph_sizes"`
}

type choice struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Why   string `json:"why"`
}

// MarshalJSON writes the documented form: field names are stable, lists are
// never null.
func (p *Plan) MarshalJSON() ([]byte, error) {
	o := p.Options
	rows := []RankRow{}
	if p.Ranks > 1 {
		var err error
		if rows, err = p.RankRows(); err != nil {
			return nil, err
		}
	}
	d := document{
		Version: Version, Profile: p.Profile, InMemory: p.InMemory, Overridden: append([]string{}, p.Overridden...), Verdict: p.Verdict(), Model: p.Model, Backend: p.Backend, Machine: p.Facts,
		Options: options{
			o.MaxModelLen, o.MaxNumSeqs, o.MaxNumBatchedTokens, o.BlockSize, word(o.KVFormat), o.KVBytes, o.PrefixCaching,
			o.ChunkedPrefill, o.Overlap, o.Policy.String(), o.ITLTarget.Seconds(), o.Backend.Threads, o.Backend.HTTPShare, o.Backend.Variant,
			o.Backend.Favor, o.Backend.Activations,
			o.Drafts, p.graphMode(), append([]int{}, o.Backend.Graphs.Sizes...),
		},
		Devices: p.Ranks, TightestRank: p.Tightest, Ranks: rows, Budget: p.Budget, TotalBytes: p.Ledger.Total(), HostBytes: p.Ledger.HostTotal(), Ledger: p.Ledger, Capacity: p.Capacity, Choices: []choice{},
		Kernels: p.Kernels, Favored: append([]Favored{}, p.Favored...), Shapes: append([]backend.KernelChoice{}, p.Shapes...), Converted: append([]string{}, p.Converted...), Warnings: append([]string{}, p.Warnings...),
		PlanOnly:      append([]string{}, p.PlanOnly...),
		GoMemoryLimit: p.GoMemoryLimit, Speed: p.Speed,
	}
	for _, c := range p.Choices {
		d.Choices = append(d.Choices, choice(c))
	}
	return json.Marshal(d)
}

func (p *Plan) graphMode() string {
	if m := p.Options.Backend.Graphs.Mode; m != "" {
		return m
	}
	return "none"
}

// JSON writes the plan as indented JSON.
func (p *Plan) JSON(w io.Writer) error { return writeIndented(w, p) }

func writeIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
