//go:build cgo && linux

package cpu

import (
	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// op appends the phases of one op of a checked program.
func (c *compiler) op(op backend.Op) error {
	switch o := op.(type) {
	case backend.Tokens:
		return add(c, kcpu.OpTokens, kcpu.Tokens{
			IDs: address(c.s.Tokens), Sampled: address(c.o.Sampled), Out: c.value(o.Out),
			Samples: int32(len(c.o.Sampled)), Vocab: int32(c.p.Vocab),
		}, backend.PerToken, 1, worth)
	case backend.StoreTokens:
		return add(c, kcpu.OpStoreTokens, kcpu.StoreTokens{
			Pages: c.plane(o.Class), IDs: c.value(o.Ids), Seq: address(c.s.Seq), Positions: address(c.s.Positions), First: address(c.s.First),
		}, backend.PerToken, 1, worth)
	case backend.Embed:
		return c.embed(o)
	case backend.Linear:
		return c.linear(o)
	case backend.HeadLinear:
		return c.headLinear(o)
	case backend.Experts:
		return c.experts(o)
	case backend.Gather:
		y := c.info(o.Y)
		return add(c, kcpu.OpGather, kcpu.Gather{
			X: c.value(o.X), Rows: address(c.s.Rows), Y: c.value(o.Y), Bytes: y.Format.Bytes(int64(y.Cols)),
		}, backend.PerSample, 1, rows(y.Cols))
	case backend.GatherLast:
		y := c.info(o.Y)
		return add(c, kcpu.OpGatherLast, kcpu.GatherLast{
			X: c.value(o.X), First: address(c.s.First), Y: c.value(o.Y), Bytes: y.Format.Bytes(int64(y.Cols)),
		}, backend.PerSeq, 1, rows(y.Cols))
	case backend.Sample:
		return c.sample(o)
	case backend.OutputRows:
		x := c.info(o.X)
		return add(c, kcpu.OpConcat, kcpu.Concat{ // Concat with no second operand is a copy
			A: c.value(o.X), B: c.value(o.X), Y: address(c.s.Outputs), Symbol: int32(x.Rows), ACols: int32(x.Cols),
		}, x.Rows, 1, rows(x.Cols))
	case backend.Angles, backend.Rope, backend.LatentRope, backend.Attention, backend.StoreKV:
		return c.attention(op)
	case backend.DraftInput, backend.Verify, backend.GatherAccepted, backend.Propose:
		return c.draft(op)
	}
	return c.layer(op)
}

func (c *compiler) attention(op backend.Op) error {
	switch o := op.(type) {
	case backend.Angles:
		half := c.info(o.Y).Cols / 2
		a := kcpu.Angles{
			Positions: address(c.s.Positions), AcceptedRow: c.acceptedRow(o.Draft), By: by(o.Draft), Freq: c.weight(o.InvFreq), Y: c.value(o.Y), Half: int32(half), Scale: o.Scale,
			Every: int32(o.Temperature.Every), Offset: int32(o.Temperature.Offset), Beta: o.Temperature.Beta,
		}
		c.places(o, &a)
		return add(c, kcpu.OpAngles, a, c.info(o.Y).Rows, 1, rows(128*half))
	case backend.Rope:
		return c.rope(o)
	case backend.Attention:
		return c.attend(o)
	case backend.LatentRope:
		return c.latentRope(o)
	case backend.StoreKV:
		k := c.p.Classes[o.Class]
		return add(c, kcpu.OpStoreKV, kcpu.StoreKV{
			Pages: c.pages(o.Class, o.Layer), K: c.value(o.K), V: c.value(o.V),
			Seq: address(c.s.Seq), Positions: address(c.s.Positions), First: address(c.s.First), AcceptedRow: c.acceptedRow(o.Draft), By: by(o.Draft), Latent: flag(c.info(o.K).Cols == k.KVHeads*k.KeyDim),
		}, c.info(o.K).Rows, 1, rows(8*k.KVHeads*k.HeadDim))
	}
	return backend.Unsupported(name, "op "+backend.OpName(op), "it has no kernel")
}

// attend appends attention and then, on one thread, the phase that joins split results. Before it is the
// phase that packs keys and values, if the kernel reads packed ones.
func (c *compiler) attend(o backend.Attention) error {
	threads := c.d.layout.threads
	shared, packed := c.d.layout.attentionShared(c.p, o)
	a := kcpu.Attention{
		Q: c.value(o.Q), K: c.value(o.K), V: c.value(o.V), Y: c.value(o.Y),
		Positions: address(c.s.Positions), First: address(c.s.First), AcceptedRow: c.acceptedRow(o.Draft), By: by(o.Draft), Work: c.workspace(shared), Shared: c.workspace(0),
		WorkBytes: kcpu.AttentionWorkspace(o.HeadDim, o.Latent), SharedBytes: shared, Latent: int32(o.Latent), Heads: int32(o.Heads), Threads: int32(threads),
		Scale: o.Scale, Softcap: o.Softcap, Window: int32(o.Window),
	}
	if o.Items {
		a.Items = address(c.s.ItemEnd)
	}
	if o.Sinked {
		a.Sinks = c.weight(o.Sinks)
	}
	if o.Rebuild != nil {
		a.Rebuild = c.weight(o.Rebuild.Weight)
	}
	if kcpu.MultiplyAdds() {
		a.FMA = 1
	}
	if o.Bidirectional {
		a.Bidirectional = 1
		a.Pages = kcpu.Pages{Format: int32(c.info(o.K).Format), KVHeads: int32(o.KVHeads), HeadDim: int32(o.HeadDim), KeyDim: int32(o.HeadDim)}
	} else {
		a.Pages = c.pages(o.Class, o.Layer)
	}
	symbol := c.info(o.Y).Rows
	if packed {
		a.Packed = 1
		if err := add(c, kcpu.OpAttentionPack, a, symbol, 1, rows(2*o.KVHeads*o.HeadDim)); err != nil {
			return err
		}
		return add(c, kcpu.OpAttention, a, symbol, 1, 0)
	}
	if err := add(c, kcpu.OpAttention, a, symbol, 1, 0); err != nil || threads == 1 {
		return err
	}
	return add(c, kcpu.OpAttentionJoin, a, symbol, 0, 1)
}

// workspace returns the address of an offset in the workspace.
func (c *compiler) workspace(off int64) uintptr { return c.d.arenas[backend.Workspace].address(off) }

// embed reads a table row by row, or a packed weight through its kernel.
func (c *compiler) embed(o backend.Embed) error {
	w, y := c.p.Weights[o.Table], c.info(o.Y)
	a := kcpu.Embed{
		IDs: c.value(o.Ids), Table: c.weight(o.Table), Y: c.value(o.Y),
		Format: int32(c.d.weights[o.Table].Format), Cols: int32(w.Cols), Rows: int32(w.Rows), Scale: o.Scale,
		Symbol: int32(y.Rows), Row0: int32(o.Row0),
	}
	if w.Use&backend.Multiply != 0 {
		k, err := c.kernel(o.Table)
		if err != nil {
			return err
		}
		a.Row, a.Format = k.RowAddress(), k.Code()
	}
	return add(c, kcpu.OpEmbed, a, y.Rows, 1, rows(4*y.Cols))
}

func (c *compiler) kernel(w backend.WeightID) (kcpu.LinearKernel, error) {
	return c.kernelOf(c.p.Weights[w], c.d.weights[w].Format)
}

// kernelOf returns the kernel that multiplies with a weight packed as f.
func (c *compiler) kernelOf(w backend.WeightSpec, f kernels.Format) (kcpu.LinearKernel, error) {
	k, ok := c.d.layout.matrix(w, f).Kernel()
	if !ok {
		return k, backend.Unsupported(name, "weight "+w.Name, "this binary has no "+c.d.layout.variant+" kernel for "+f.String())
	}
	return k, nil
}

// linear appends the product with a weight, or with each of its segments.
func (c *compiler) linear(o backend.Linear) error {
	x, y := c.info(o.X), c.info(o.Y)
	a := kcpu.Linear{
		W: c.weight(o.W), Bias: c.weight(o.Bias), X: c.value(o.X), LdX: int64(x.Cols), Y: c.value(o.Y), LdY: int64(y.Cols),
		In: int32(x.Cols), Symbol: int32(y.Rows),
	}
	list := c.p.Weights[o.W].Segments()
	if list == nil {
		return c.multiply(a, c.p.Weights[o.W], c.d.weights[o.W].Format)
	}
	for _, s := range list {
		p, err := c.d.layout.Weight(s)
		if err == nil {
			err = c.multiply(a, s, p.Format)
		}
		if err != nil {
			return err
		}
		a.W += uintptr(p.Bytes)
		a.Y += uintptr(4 * s.Rows)
		if a.Bias != 0 {
			a.Bias += uintptr(4 * s.Rows)
		}
	}
	return nil
}

// multiply appends the phases of one product; a has the operands.
func (c *compiler) multiply(a kcpu.Linear, w backend.WeightSpec, f kernels.Format) error {
	k, err := c.kernelOf(w, f)
	if err != nil {
		return err
	}
	symbol := backend.Rows(a.Symbol)
	r, err := c.d.layout.weightWorkspace(w, c.p.Rows(symbol))
	if err != nil {
		return err
	}
	a.Out, a.Format, a.Kernel = int32(w.Rows), k.Code(), k.Address()
	a.Shared, a.SharedBytes, a.Work, a.WorkBytes, a.WorkStride = c.workspace(0), r.shared, c.workspace(r.shared), r.each, r.each
	if n := k.PrepareRows(); n > 0 && c.p.Rows(symbol) >= n {
		if err := add(c, kcpu.OpLinearPrepare, a, symbol, 1, max(n, rows(int(a.In)))); err != nil {
			return err
		}
		c.last().least = int32(n)
	}
	if err := add(c, kcpu.OpLinearRun, a, symbol, 1, 0); err != nil {
		return err
	}
	c.last().least = 1
	return nil
}

func (c *compiler) sample(o backend.Sample) error {
	samples := max(1, len(c.s.Sampled))
	return add(c, kcpu.OpSample, kcpu.Sample{
		Pages: c.plane(o.Class), Logits: c.value(o.Logits), Rows: address(c.s.Sampling), Grammar: address(c.s.Grammar),
		Allowed: address(c.s.Allowed), Bias: address(c.s.Bias), Sampled: address(c.s.Sampled), Status: address(c.s.Status),
		Logprob: address(c.s.Logprob), Rank: address(c.s.Rank), TopIDs: address(c.s.TopIDs), TopProbs: address(c.s.TopProbs),
		Work: c.workspace(0), WorkBytes: kcpu.SampleWorkspace(c.p.Vocab),
		Vocab: int32(c.p.Vocab), Words: int32(c.s.Words), MaxBias: int32(len(c.s.Bias) / samples), MaxTop: int32(len(c.s.TopIDs) / samples),
	}, backend.PerSample, 1, 1)
}
