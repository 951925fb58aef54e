package cpu

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// Runs rejects weights and ops that are planned and have no kernel yet.
func (l layout) Runs(weights []backend.WeightSpec, p *backend.Program) error {
	for _, op := range p.Ops {
		if what := missing(op); what != "" {
			return backend.Unsupported(name, "op "+what, "it has no kernel; it is planned only")
		}
	}
	for _, c := range p.Classes {
		if what := missingClass(c); what != "" {
			return backend.Unsupported(name, "KV class "+c.Name+": "+what, "it has no kernel yet")
		}
	}
	for _, w := range weights {
		if _, err := l.Weight(w); err != nil {
			return err
		}
	}
	return nil
}

// missing returns the feature of an op that has no kernel; "" if it has none. It clears the
// fields that kernels support, then asks RequiredFeature about the rest.
func missing(op backend.Op) string {
	switch o := op.(type) {
	case backend.Add, backend.Concat, backend.Reorder, backend.Softcap, backend.Activate, backend.Gate, backend.GatherLast, backend.Route, backend.Experts, backend.DeltaNet,
		backend.DraftInput, backend.Verify, backend.GatherAccepted, backend.Propose, backend.OutputRows, backend.Adapt, backend.LatentRope, backend.HeadLinear, backend.Send, backend.Receive,
		backend.Patches, backend.AvgPool, backend.Standardize, backend.Resample, backend.Join, backend.EncoderOutput, backend.Merge:
		return ""
	case backend.Conv:
		if !o.Biased {
			return ""
		}
	case backend.Embed:
		o.Row0 = 0
		return backend.RequiredFeature(o)
	case backend.Norm:
		o.W, o.Offset, o.Scale, o.Segment, o.Gated, o.Plain = 0, 0, 0, 0, false, false
		return backend.RequiredFeature(o)
	case backend.Rope:
		o.Norm, o.Gated, o.Shared, o.Rotary, o.Interleaved, o.Tempered, o.KVHeads, o.Grid = nil, false, false, o.HeadDim, false, false, 1, false
		return backend.RequiredFeature(o)
	case backend.Angles:
		o.Draft, o.Temperature, o.Grid, o.Sections = nil, backend.Temperature{}, false, [3]int{}
		return backend.RequiredFeature(o)
	case backend.StoreKV:
		o.Draft = nil
		return backend.RequiredFeature(o)
	case backend.Attention:
		o.Draft, o.Rebuild, o.Latent, o.Bidirectional, o.Items, o.Window, o.Chunked, o.Sinked, o.Softcap = nil, nil, 0, false, false, 0, false, false, 0
		return backend.RequiredFeature(o)
	case backend.GLU:
		o.Activation = backend.Activation{}
		return backend.RequiredFeature(o)
	}
	return backend.RequiredFeature(op)
}

// missingClass returns the feature of a class's pages that no kernel supports; "" if there is
// none.
func missingClass(c backend.KVClass) string {
	if s := c.State; s != nil && s.ConvFormat != kernels.F32 && s.ConvFormat != kernels.F16 && s.ConvFormat != kernels.BF16 {
		return fmt.Sprintf("a convolution's inputs in %v", s.ConvFormat)
	}
	return ""
}
