package cpu

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// workspaceSize is the part of the workspace that an op needs: bytes that all threads share,
// then bytes for each thread. Ops run one after the other, so each starts at offset 0.
type workspaceSize struct{ shared, each int64 }

// Workspace returns the largest workspace of p's ops. It rejects shapes that no kernel has.
func (l layout) Workspace(p *backend.Program) (int64, error) {
	var most int64
	for _, op := range p.Ops {
		r, err := l.opWorkspace(p, op)
		if err != nil {
			return 0, err
		}
		most = max(most, r.shared+int64(l.threads)*r.each)
	}
	return most, nil
}

// opWorkspace returns the workspace of one op, at the bucket's row counts.
func (l layout) opWorkspace(p *backend.Program, op backend.Op) (workspaceSize, error) {
	switch o := op.(type) {
	case backend.Linear:
		return l.linearWorkspace(p, o)
	case backend.Attention:
		shared, _ := l.attentionShared(p, o)
		return workspaceSize{shared, kcpu.AttentionWorkspace(o.HeadDim, o.Latent)},
			within("attention heads", max(o.HeadDim, o.Latent), kcpu.MaxHeadDim)
	case backend.LatentRope:
		return workspaceSize{}, within("latent keys", max(o.Rank, o.Rotary), kcpu.MaxHeadDim)
	case backend.HeadLinear:
		r, err := l.headWorkspace(p, o)
		return workspaceSize{each: r.shared + r.each}, err
	case backend.Sample:
		if p.Vocab > kcpu.MaxVocab {
			return workspaceSize{}, backend.Unsupported(name, fmt.Sprintf("a vocabulary of %d", p.Vocab), fmt.Sprintf("at most %d", kcpu.MaxVocab))
		}
		return workspaceSize{each: kcpu.SampleWorkspace(p.Vocab)}, nil
	case backend.Experts:
		return l.expertWorkspace(p, o)
	case backend.DeltaNet:
		return workspaceSize{}, within("keys", o.KeyDim, kcpu.MaxKeyDim)
	case backend.Conv:
		return workspaceSize{}, within("a convolution", o.Kernel, kcpu.MaxConvKernel)
	case backend.Rope:
		return workspaceSize{}, within("heads", o.HeadDim, kcpu.MaxHeadDim)
	case backend.Resample:
		return workspaceSize{}, l.tableOf(p, o)
	case backend.DraftInput, backend.Verify:
		return workspaceSize{shared: align(4 * int64(p.Bucket.Tokens))}, nil
	case backend.Tokens, backend.StoreTokens, backend.Embed, backend.Norm, backend.Angles,
		backend.StoreKV, backend.Mamba2, backend.GLU, backend.Gather, backend.GatherLast, backend.Add, backend.Concat, backend.Reorder, backend.Softcap,
		backend.Patches, backend.AvgPool, backend.Standardize, backend.EncoderOutput, backend.Merge, backend.Join,
		backend.Activate, backend.Route, backend.AllReduce, backend.AllGather,
		backend.Send, backend.Receive, backend.Gate, backend.GatherAccepted, backend.Propose, backend.OutputRows, backend.Adapt:
		return workspaceSize{}, nil
	}
	return workspaceSize{}, backend.Unsupported(name, "op "+backend.OpName(op), "it has no kernel")
}

// attentionShared returns the workspace that all threads of an attention share: results of spans, or
// keys and values that are packed first.
func (l layout) attentionShared(p *backend.Program, o backend.Attention) (bytes int64, packed bool) {
	plain := o.Bidirectional && o.Window == 0 && o.Softcap == 0 && !o.Sinked && !o.Items && o.Draft == nil
	if plain && o.K >= 0 && int(o.K) < len(p.Values) && kcpu.AttentionPacks(l.kernels(kcpu.OpAttention), p.Values[o.K].Format) {
		return kcpu.AttentionPacked(p.Rows(p.Values[o.K].Rows), p.Bucket.Seqs, o.KVHeads, o.HeadDim), true
	}
	return kcpu.AttentionShared(l.threads, o.Heads/max(1, o.KVHeads), o.HeadDim), false
}

// headWorkspace returns the workspace of one head's product. A part has both of its own.
func (l layout) headWorkspace(p *backend.Program, o backend.HeadLinear) (workspaceSize, error) {
	return l.linearWorkspace(p, backend.Linear{X: o.X, W: o.W})
}

// expertWorkspace holds the rows of a mixture of experts, sorted by expert, and the results
// of gate, up and their product for each row.
func (l layout) expertWorkspace(p *backend.Program, o backend.Experts) (workspaceSize, error) {
	s, err := l.expertShape(p, o)
	if err != nil {
		return workspaceSize{}, err
	}
	r := s.Workspace()
	return workspaceSize{shared: r.Bytes, each: r.Each}, nil
}

func (l layout) expertShape(p *backend.Program, o backend.Experts) (s kcpu.ExpertShape, err error) {
	in := func(w backend.WeightID) bool { return w >= 0 && int(w) < len(p.Weights) }
	if !in(o.GateUp) || !in(o.Down) || int(o.X) >= len(p.Values) || o.X < 0 || o.Top < 1 {
		return s, fmt.Errorf("backend %s: program %s: experts of weights %d, %d and value %d, which it lacks", name, p.Name, o.GateUp, o.Down, o.X)
	}
	up, down := p.Weights[o.GateUp], p.Weights[o.Down]
	s.Rows, s.Top, s.Experts = p.Rows(p.Values[o.X].Rows), o.Top, up.Experts
	for _, w := range []struct {
		spec backend.WeightSpec
		to   *kcpu.Matrix
	}{{up, &s.GateUp}, {down, &s.Down}} {
		packed, err := l.Weight(w.spec)
		if err != nil {
			return s, err
		}
		*w.to = l.matrix(w.spec, packed.Format)
	}
	if up.Experts < 1 || down.Experts != up.Experts {
		return s, fmt.Errorf("backend %s: program %s: stacks of %d and %d experts", name, p.Name, up.Experts, down.Experts)
	}
	return s, nil
}

// tableOf returns an error unless the kernel reads the table of o, which is stored row by row.
func (l layout) tableOf(p *backend.Program, o backend.Resample) error {
	if o.Table < 0 || int(o.Table) >= len(p.Weights) {
		return fmt.Errorf("backend %s: program %s: resample of weight %d, which it lacks", name, p.Name, o.Table)
	}
	w := p.Weights[o.Table]
	packed, err := l.Weight(w)
	if err != nil {
		return err
	}
	if f := packed.Format; w.Use != backend.Lookup || f != kernels.F32 && f != kernels.F16 && f != kernels.BF16 {
		return backend.Unsupported(name, fmt.Sprintf("resample of %s in %v", w.Name, f), "places are f32, f16 or bf16, and only looked up")
	}
	return nil
}

// within returns an error if n is more than kernels support.
func within(what string, n, most int) error {
	if n <= most {
		return nil
	}
	return backend.Unsupported(name, fmt.Sprintf("%s of %d", what, n), fmt.Sprintf("at most %d", most))
}

func (l layout) linearWorkspace(p *backend.Program, o backend.Linear) (workspaceSize, error) {
	if int(o.W) >= len(p.Weights) || o.W < 0 || int(o.X) >= len(p.Values) || o.X < 0 {
		return workspaceSize{}, fmt.Errorf("backend %s: program %s: linear of weight %d and value %d, which it lacks", name, p.Name, o.W, o.X)
	}
	return l.weightWorkspace(p.Weights[o.W], p.Rows(p.Values[o.X].Rows))
}

// weightWorkspace returns the workspace for rows times a weight. Segments run one after the
// other.
func (l layout) weightWorkspace(w backend.WeightSpec, rows int) (most workspaceSize, err error) {
	if list := w.Segments(); list != nil {
		for _, s := range list {
			r, err := l.weightWorkspace(s, rows)
			if err != nil {
				return most, err
			}
			most.shared, most.each = max(most.shared, r.shared), max(most.each, r.each)
		}
		return most, nil
	}
	packed, err := l.Weight(w)
	if err != nil {
		return workspaceSize{}, err
	}
	shared, each := kcpu.LinearWorkspace(l.matrix(w, packed.Format).Variant, packed.Format, rows, w.Cols, w.Rows, l.threads)
	return workspaceSize{align(shared), align(each)}, nil
}
