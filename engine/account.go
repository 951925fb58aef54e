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
	// Pool is the layout that rank 0 counts pages by: that of the layers of all pipeline stages. A
	// slab has the same pages in Pool and in KV, of the classes that this rank has. Without a
	// pipeline it is KV.
	Pool kv.Layout
	// Whole are the classes of Pool, and WholeStep has the step buffers for them, which rank 0
	// fills. A rank's own step buffers differ only in MaxPages. Without a pipeline they are
	// Reservation.Classes and Reservation.Step.
	Whole     []backend.KVClass
	WholeStep backend.StepShape
	// ClassOf is for each class of Reservation the index of that class in Pool and Whole.
	ClassOf []int
	// Items are the sizes for images; zero: requests have none.
	Items ItemOptions
	// PlanOnly is why a device of this layout would refuse the reservation; nil if it would not.
	PlanOnly error

	allStages *Model // the model with the layers of all stages
	// wholeItems means that in a layer of some stage the tokens of an item see later ones, so that a step computes all
	// of them.
	wholeItems bool
}

// Slabs returns how many slabs this rank's arena of that many bytes has, at most as many as page
// numbers allow on any stage.
func (a *Account) Slabs(bytes int64) int { return min(a.KV.Slabs(bytes), a.Pool.MaxSlabs()) }

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
	whole, err := m.allStages()
	if err != nil {
		return nil, err
	}
	at, err := layoutKV(o, m, whole)
	if err != nil {
		return nil, err
	}
	bucket := backend.Bucket{Tokens: o.MaxNumBatchedTokens, Seqs: o.MaxNumSeqs, Samples: o.rows()}
	if c, ok := l.(backend.Chunked); ok {
		bucket.Chunk = c.Chunk(bucket.Tokens)
	}
	programs, err := record(m, bucket, at.classes, o.Items.Patches)
	if err != nil {
		return nil, err
	}
	first := programs[0]
	if whole != m {
		all, err := whole.Family.Record(&backend.Program{Name: "step", Bucket: bucket, Classes: at.whole})
		if err != nil {
			return nil, err
		}
		first = all
	}
	step := backend.StepShape{
		Tokens: o.MaxNumBatchedTokens, Seqs: o.MaxNumSeqs, Samples: first.Bucket.Samples,
		Vocab: m.Family.Vocab(), Bias: MaxBias, Logprobs: MaxLogprobs, Drafts: m.Source.Build.Draft, Verify: o.Drafts, Axes: first.Axes, OutputCols: outputWidth(first), AdapterSlots: first.AdapterSlots,
		Items: first.TakesItems(),
	}
	if n := m.Source.Build.Pipe.World; n > 2 && o.Drafts == 0 {
		step.Sets = n // a step in flight for each stage
	}
	r, err := dry.Run(l, m.Family.Weights(), programs, withTables(step, at.classes), o.KVBytes)
	if err != nil {
		return nil, err
	}
	a := &Account{Layout: l, Reservation: r, allStages: whole, wholeItems: seesItems(first)}
	a.set(at, step)
	a.Reservation.Arenas[backend.Swap] = l.Round(int64(a.Slabs(o.SwapBytes)) * a.KV.SlabBytes)
	if err := a.addEncoder(o, m); err != nil {
		return nil, err
	}
	for _, p := range programs {
		if err := l.Runs(r.Weights, p); err != nil && a.PlanOnly == nil {
			a.PlanOnly = err
		}
	}
	return a, nil
}

// set stores where pages are placed, and the step buffers of all stages.
func (a *Account) set(at placement, step backend.StepShape) {
	a.KV, a.Pool, a.Whole, a.WholeStep = at.layout, at.pool, at.whole, withTables(step, at.whole)
	a.ClassOf = make([]int, len(at.classes))
	for i, c := range at.classes {
		a.ClassOf[i] = at.pool.Class(c.Name)
	}
}

// withTables returns step with the page tables of these classes.
func withTables(step backend.StepShape, classes []backend.KVClass) backend.StepShape {
	step.MaxPages = nil
	for _, c := range classes {
		step.MaxPages = append(step.MaxPages, c.MaxPages)
	}
	return step
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
// with its vision tower, the tower's pass over at most that many patches; 0: the model's maximum.
func record(m *Model, bucket backend.Bucket, classes []backend.KVClass, patches int) ([]*backend.Program, error) {
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
	if patches == 0 {
		patches = enc.Patches()
	}
	vision, err := enc.RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: patches, Seqs: 1, Samples: 1}})
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
