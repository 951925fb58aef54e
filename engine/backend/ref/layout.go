package ref

import (
	"fmt"
	"strconv"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// page is the unit in which Go's heap allocates large objects: a slice of whole pages takes
// exactly its length and begins at a page.
const page = 8192

// layout is the pure half. It stores weights in their own format.
type layout struct {
	threads int
	fp8     bool // inputs are rounded to E4M3 for weights of E4M3, as in backend cuda
	group   backend.Group
}

func newLayout(f backend.Facts, s backend.Settings) (layout, error) {
	if s.Activations != "" && s.Activations != backend.FP8Activations {
		return layout{}, backend.Unsupported(name, "activations "+s.Activations, "they are fp8, or float32")
	}
	if s.Variant != "" && s.Variant != "go" {
		return layout{}, backend.Unsupported(name, "variant "+s.Variant, `it has one, "go"`)
	}
	if s.Threads < 0 || s.Threads > 1024 {
		return layout{}, backend.Unsupported(name, fmt.Sprintf("%d threads", s.Threads), "0 (every core) to 1024")
	}
	threads := s.Threads
	if threads == 0 {
		threads = max(1, int(float64(f.Cores)*(1-s.HTTPShare)))
	}
	return layout{threads, s.Activations == backend.FP8Activations, s.Group}, nil
}

func (l layout) Choices() []backend.Choice {
	out := []backend.Choice{
		{Name: "variant", Value: "go", Why: "plain Go"},
		{Name: "threads", Value: strconv.Itoa(l.threads), Why: "cores less the share left to HTTP, or as set"},
	}
	if l.fp8 {
		out = append(out, backend.Choice{Name: "activations", Value: backend.FP8Activations, Why: "as set, with weights of f8_e4m3; with others f32"})
	}
	return out
}

// Packing implements backend.PackingLayout.
func (l layout) Packing() string {
	if l.fp8 {
		return "fp8 activations"
	}
	return "activations as they are"
}

// spec returns a weight with the settings for its inputs applied.
func (l layout) spec(w backend.WeightSpec) (backend.WeightSpec, error) {
	if !l.fp8 {
		return w, nil
	}
	return backend.FP8Inputs(name, w)
}

// Weight stores a matrix in its own format, and as F32 vectors and matrices whose parts have
// several formats.
func (l layout) Weight(w backend.WeightSpec) (backend.Packed, error) {
	w, err := l.spec(w)
	if err != nil {
		return backend.Packed{}, err
	}
	p := backend.Packed{Format: w.Stored(), Kernel: "go"}
	switch {
	case w.Use&backend.Vector != 0:
		p.Format = kernels.F32
	case p.Format == kernels.Invalid:
		p.Format, p.Note = kernels.F32, "its parts have several formats"
	}
	for _, part := range w.Parts {
		if part.Format == kernels.I32 || part.Format == kernels.U32 || part.Format == kernels.U8 || part.Format == kernels.I64 || part.Format == kernels.Invalid {
			return p, backend.Unsupported(name, "weight "+w.Name, "it is stored as "+part.Format.String())
		}
	}
	if w.RoundInputs && w.Stored() != kernels.F8E4M3 && w.Stored() != kernels.I8 {
		return p, backend.Unsupported(name, "weight "+w.Name+" with int8 inputs", "only matrices of int8 have them")
	}
	if block, _ := p.Format.Block(); w.Cols%block != 0 {
		return p, backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("rows of %d are no whole %v blocks", w.Cols, p.Format))
	}
	p.Bytes = align(matrixBytes(w, p.Format)) + align(4*scalesOf(w, p.Format))
	return p, nil
}

func (l layout) KVFormats() []kernels.Format {
	return []kernels.Format{kernels.F32, kernels.F16, kernels.BF16}
}

// Workspace checks p and returns the largest workspace of an op, times the number of threads.
func (l layout) Workspace(p *backend.Program) (int64, error) {
	if err := p.Check(); err != nil {
		return 0, err
	}
	var most int64
	for _, op := range p.Ops {
		most = max(most, l.workspaceOf(p, op))
	}
	return int64(l.threads) * most, nil
}

// Runs rejects weights and ops that are planned and have no kernel yet.
func (l layout) Runs(weights []backend.WeightSpec, p *backend.Program) error {
	for _, op := range p.Ops {
		if !known(op) {
			return backend.Unsupported(name, "op "+backend.OpName(op), "it has no kernel yet")
		}
	}
	return nil
}

func (l layout) Round(n int64) int64 { return (n + page - 1) / page * page }

func align(n int64) int64 { return (n + 63) / 64 * 64 }

// workspaceOf returns the bytes that an op needs on one thread.
func (l layout) workspaceOf(p *backend.Program, op backend.Op) int64 {
	switch o := op.(type) {
	case backend.Linear:
		return align(4*ref.Together*int64(p.Values[o.X].Cols)) + l.roundingSize(p, o.W)
	case backend.HeadLinear:
		return align(4 * ref.Together * int64(p.Weights[o.W].Cols))
	case backend.Adapt:
		return align(4 * int64(max(p.Values[o.X].Cols, p.Values[o.Y].Cols)))
	case backend.Experts:
		n := int64(p.Values[o.X].Cols)
		round := max(l.roundingSize(p, o.GateUp), l.roundingSize(p, o.Down))
		return align(4*2*int64(o.Width)) + align(4*int64(o.Width)) + align(4*n) + align(4*ref.Together*max(n, int64(o.Width))) + round
	case backend.Attention:
		n, d := spanOf(p, o), int64(o.HeadDim)
		return align(4*n*d) + align(4*n*(d+int64(o.Latent))) + align(8*n) + align(8*d)
	case backend.Sample:
		return 3*align(4*int64(p.Vocab)) + align(4*positions(p, o.Class))
	}
	return 0
}

// roundingSize returns the bytes needed to round a row for a weight.
func (l layout) roundingSize(p *backend.Program, id backend.WeightID) int64 {
	if id < 0 || int(id) >= len(p.Weights) {
		return 0
	}
	w, err := l.spec(p.Weights[id])
	if err != nil || !w.RoundInputs { // Weight returns the error
		return 0
	}
	return align(4 * int64(roundingOf(w).WorkSize(w.Cols)))
}

// spanOf returns the most positions that a query attends to.
func spanOf(p *backend.Program, o backend.Attention) int64 {
	switch {
	case o.Bidirectional:
		return int64(p.Bucket.Tokens)
	case o.Window > 0:
		return int64(o.Window) + int64(p.Bucket.Tokens)
	}
	n := positions(p, o.Class)
	if o.Draft != nil {
		n++ // and a draft row after all of them
	}
	return n
}

// positions returns the maximum length of a sequence in a class.
func positions(p *backend.Program, class int) int64 {
	if class < 0 || class >= len(p.Classes) {
		return 0
	}
	return int64(p.Classes[class].MaxPages) * int64(p.Classes[class].BlockSize)
}
