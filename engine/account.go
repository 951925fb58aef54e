package engine

import (
	"fmt"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/models"
	"vapp.dev/engine/sched"
	"vapp.dev/engine/speculate"
	"vapp.dev/kernels"
)

// Options is everything that a plan decides about an engine.
type Options struct {
	MaxModelLen         int // tokens, prompt and output
	MaxNumSeqs          int
	MaxNumBatchedTokens int
	MaxQueue            int // waiting requests at most; 0: no bound
	BlockSize           int // tokens a KV page holds
	KVFormat            kernels.Format
	KVBytes             int64 // of the KV arena: whole slabs
	SwapBytes           int64 // on the host, for the pages of preempted sequences: what holds whole slabs is used
	PrefixCaching       bool
	ChunkedPrefill      bool
	Overlap             bool // launch step n+1 before step n is committed
	Drafts              int  // proposed tokens that a step verifies for each sequence; without Overlap
	// Lookup is where proposals come from if not from the model's own head
	// (models.Build.Draft).
	Lookup speculate.NGram
	// EveryRow lets a step of a model that pools give a row for each of its tokens; without
	// it, one for each sequence.
	EveryRow bool
	Policy   sched.Policy
	// ITLTarget bounds the time between two tokens of a stream while prompts are computed
	// beside it, with ChunkedPrefill; 0: nothing does.
	ITLTarget time.Duration
	Backend   backend.Settings
}

// Limits of a request that the step buffers are sized by.
const (
	MaxLogprobs = 20   // top logprobs a request may ask for, as vLLM's default
	MaxBias     = 1024 // logit edits a row may carry
)

// Account is what an engine with these options will hold, derived on dry from
// the model's own load and programs.
type Account struct {
	Layout      backend.Layout
	Reservation backend.Reservation
	KV          kv.Layout
	// PlanOnly is why a device of this layout would refuse the reservation; nil: it
	// would not.
	PlanOnly error
}

// NewAccount runs m's load and its largest step on dry, over the layout that op
// has for a machine with these facts. It opens no device.
func NewAccount(o Options, m *Model, op backend.Opener, f backend.Facts) (*Account, error) {
	l, err := op.Layout(f, o.Backend)
	if err != nil {
		return nil, err
	}
	if err := supported(l, op.Name(), o.KVFormat); err != nil {
		return nil, err
	}
	if err := models.KVScales(m.Checkpoint, o.KVFormat); err != nil {
		return nil, err
	}
	classes, layout, err := placeKV(o, m)
	if err != nil {
		return nil, err
	}
	bucket := backend.Bucket{Tokens: o.MaxNumBatchedTokens, Seqs: o.MaxNumSeqs, Samples: o.rows()}
	if c, ok := l.(backend.Chunked); ok {
		bucket.Chunk = c.Chunk(bucket.Tokens)
	}
	programs, err := record(m, bucket, classes)
	if err != nil {
		return nil, err
	}
	step := backend.StepShape{
		Tokens: o.MaxNumBatchedTokens, Seqs: o.MaxNumSeqs, Samples: programs[0].Bucket.Samples,
		Vocab: m.Family.Vocab(), Bias: MaxBias, Logprobs: MaxLogprobs, Drafts: m.Source.Build.Draft, Verify: o.Drafts, Axes: programs[0].Axes, OutputCols: emitted(programs[0]),
	}
	for _, c := range classes {
		step.MaxPages = append(step.MaxPages, c.MaxPages)
	}
	r, err := dry.Run(l, m.Family.Weights(), programs, step, o.KVBytes)
	if err != nil {
		return nil, err
	}
	r.Arenas[backend.Swap] = l.Round(int64(layout.Slabs(o.SwapBytes)) * layout.SlabBytes)
	a := &Account{Layout: l, Reservation: r, KV: layout}
	for _, p := range programs {
		if err := l.Runs(r.Weights, p); err != nil && a.PlanOnly == nil {
			a.PlanOnly = err
		}
	}
	return a, nil
}

// rows is how many rows of a step are sampled, or emitted.
func (o Options) rows() int {
	if o.EveryRow {
		return max(o.MaxNumSeqs, o.MaxNumBatchedTokens)
	}
	return o.MaxNumSeqs * (1 + o.Drafts)
}

// emitted is how many numbers a row of p gives the host; 0: it is drawn.
func emitted(p *backend.Program) int {
	for _, op := range p.Ops {
		if e, ok := op.(backend.OutputRows); ok {
			return p.Values[e.X].Cols
		}
	}
	return 0
}

// record makes the programs that an engine compiles: the step, and the pass of
// the vision tower where the model keeps one.
func record(m *Model, bucket backend.Bucket, classes []backend.KVClass) ([]*backend.Program, error) {
	step, err := m.Family.Record(&backend.Program{
		Name:    "step",
		Bucket:  bucket,
		Classes: classes,
	})
	if err != nil {
		return nil, err
	}
	enc, ok := m.Family.(models.Encoder)
	if !ok || !m.Source.Build.Vision || enc.Patches() == 0 { // a pipeline rank may have no tower
		return []*backend.Program{step}, nil
	}
	vision, err := enc.RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: enc.Patches(), Seqs: 1, Samples: 1}})
	if err != nil {
		return nil, err
	}
	return []*backend.Program{step, vision}, nil
}

func supported(l backend.Layout, name string, f kernels.Format) error {
	for _, k := range l.KVFormats() {
		if k == f {
			return nil
		}
	}
	return backend.Unsupported(name, "KV cache in "+f.String(), fmt.Sprintf("it keeps %v", l.KVFormats()))
}
