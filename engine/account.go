package engine

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// Account is the memory that an engine will take. It is computed by running the model's own
// load and recorded programs on the dry backend.
type Account struct {
	Layout      backend.Layout
	Reservation backend.Reservation
	KV          kv.Layout
	// Pool is the layout of rank 0's bookkeeping, with the classes of all pipeline stages; Whole are these classes
	// and WholeStep the step buffers for them. Without a pipeline they are KV, the reservation's classes and its step.
	Pool      kv.Layout
	Whole     []backend.KVClass
	WholeStep backend.StepShape
	// PlanOnly is why a device of this layout would refuse the reservation; nil if it would not.
	PlanOnly error
}

// NewAccount runs m's load and its largest step on the dry backend, with op's layout for a
// machine with these facts. It opens no device.
func NewAccount(o Options, m *Model, op backend.Opener, f backend.Facts) (*Account, error) {
	l, err := op.Layout(f, o.Backend)
	if err != nil {
		return nil, err
	}
	if err := checkKVFormat(l, op.Name(), o.KVFormat); err != nil {
		return nil, err
	}
	if err := models.KVScales(m.Checkpoint, o.KVFormat); err != nil {
		return nil, err
	}
	if m, err = m.atLength(o.MaxModelLen); err != nil {
		return nil, err
	}
	classes, layout, err := layoutKV(o, m)
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
		Vocab: m.Family.Vocab(), Bias: MaxBias, Logprobs: MaxLogprobs, Drafts: m.Source.Build.Draft, Verify: o.Drafts, Axes: programs[0].Axes, OutputCols: outputWidth(programs[0]), AdapterSlots: programs[0].AdapterSlots,
	}
	for _, c := range classes {
		step.MaxPages = append(step.MaxPages, c.MaxPages)
	}
	r, err := dry.Run(l, m.Family.Weights(), programs, step, o.KVBytes)
	if err != nil {
		return nil, err
	}
	r.Arenas[backend.Swap] = l.Round(int64(layout.Slabs(o.SwapBytes)) * layout.SlabBytes)
	a := &Account{Layout: l, Reservation: r, KV: layout, Pool: layout, Whole: classes, WholeStep: step}
	for _, p := range programs {
		if err := l.Runs(r.Weights, p); err != nil && a.PlanOnly == nil {
			a.PlanOnly = err
		}
	}
	return a, nil
}

// outputWidth returns how many numbers each output row of p has; 0: rows are sampled on the device.
func outputWidth(p *backend.Program) int {
	for _, op := range p.Ops {
		if e, ok := op.(backend.OutputRows); ok {
			return p.Values[e.X].Cols
		}
	}
	return 0
}

// record returns the programs that an engine compiles: the step and, if the model was built
// with its vision tower, the tower's pass.
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

func checkKVFormat(l backend.Layout, name string, f kernels.Format) error {
	for _, k := range l.KVFormats() {
		if k == f {
			return nil
		}
	}
	return backend.Unsupported(name, "KV cache in "+f.String(), fmt.Sprintf("it keeps %v", l.KVFormats()))
}
