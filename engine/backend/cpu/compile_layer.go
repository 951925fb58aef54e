//go:build cgo && linux

package cpu

import (
	"cmp"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// layer appends the ops of layers other than attention and products.
func (c *compiler) layer(op backend.Op) error {
	switch o := op.(type) {
	case backend.Norm:
		return c.norm(o)
	case backend.GLU:
		y := c.info(o.Y)
		err := add(c, kcpu.OpGLU, kcpu.GLU{
			X: c.value(o.X), Y: c.value(o.Y), Symbol: int32(y.Rows), Cols: int32(y.Cols), Activation: activation(o.Activation),
		}, y.Rows, y.Cols, worth/2)
		if err == nil {
			c.last().least = 1
		}
		return err
	case backend.Adapt:
		return c.adapt(o)
	case backend.Add:
		return c.elements(kcpu.OpAdd, o.Into, kcpu.Elements{Other: c.value(o.X), Scale: c.weight(o.Scale)})
	case backend.Gate:
		return c.elements(kcpu.OpGate, o.X, kcpu.Elements{Other: c.value(o.Gate), RowFactor: flag(c.info(o.Gate).Cols == 1)})
	case backend.Activate:
		return c.elements(kcpu.OpActivate, o.X, kcpu.Elements{Act: act(o.Act)})
	case backend.Softcap:
		return c.elements(kcpu.OpSoftcap, o.X, kcpu.Elements{Cap: o.Cap})
	case backend.Concat:
		a, b, y := c.info(o.A), c.info(o.B), c.info(o.Y)
		return add(c, kcpu.OpConcat, kcpu.Concat{
			A: c.value(o.A), B: c.value(o.B), Y: c.value(o.Y), Symbol: int32(y.Rows), ACols: int32(a.Cols), BCols: int32(b.Cols),
		}, y.Rows, 1, rows(y.Cols))
	case backend.Reorder:
		y := c.info(o.Y)
		return add(c, kcpu.OpConcat, kcpu.Concat{
			A: c.value(o.X), B: c.weight(o.Order), Y: c.value(o.Y), Symbol: int32(y.Rows), ACols: int32(c.info(o.X).Cols), BCols: int32(-y.Cols),
		}, y.Rows, 1, rows(y.Cols))
	case backend.AllGather:
		if c.p.Shard.World > 1 {
			return c.exchange(op)
		}
		x := c.info(o.X) // of one rank: a copy
		return add(c, kcpu.OpConcat, kcpu.Concat{
			A: c.value(o.X), B: c.value(o.X), Y: c.value(o.Y), Symbol: int32(x.Rows), ACols: int32(x.Cols),
		}, x.Rows, 1, rows(x.Cols))
	case backend.AllReduce, backend.Send, backend.Receive:
		return c.exchange(op)
	case backend.Route:
		l := c.info(o.Logits)
		a := kcpu.Route{
			Logits: c.value(o.Logits), Scale: c.weight(o.Scale), IDs: c.value(o.Ids), Weights: c.value(o.Weights),
			Symbol: int32(l.Rows), Experts: int32(l.Cols), Top: int32(o.Top), Score: int32(o.Score), Normalize: flag(o.Normalize),
			Groups: int32(o.Groups), TopGroups: int32(o.TopGroups), GroupTop: int32(cmp.Or(o.GroupTop, 2)), Factor: cmp.Or(o.Factor, 1),
		}
		if o.Corrected {
			a.Correction = c.weight(o.Correction)
		}
		return add(c, kcpu.OpRoute, a, l.Rows, 1, rows(8*l.Cols))
	case backend.Conv:
		return c.conv(o)
	case backend.DeltaNet:
		return c.deltaNet(o)
	}
	return c.vision(op)
}

// elements appends an op on every number of x.
func (c *compiler) elements(op kcpu.Op, x backend.Value, a kcpu.Elements) error {
	in := c.info(x)
	a.X, a.Symbol, a.Cols = c.value(x), int32(in.Rows), int32(in.Cols)
	return add(c, op, a, in.Rows, in.Cols, worth)
}

func (c *compiler) norm(o backend.Norm) error {
	y := c.info(o.Y)
	cols := y.Cols
	if o.Segment > 0 {
		cols = o.Segment
	}
	a := kcpu.Norm{
		X: c.value(o.X), Residual: c.value(o.Residual), W: c.weight(o.W), Y: c.value(o.Y),
		Symbol: int32(y.Rows), Cols: int32(cols), Segments: int32(y.Cols / cols), Eps: o.Eps, Offset: o.Offset, Scale: o.Scale,
	}
	if o.Gated {
		a.Gate = c.value(o.Gate)
	}
	if o.Plain {
		a.Plain, a.Offset, a.Bias = 1, 0, c.weight(o.Bias)
	}
	return add(c, kcpu.OpNorm, a, y.Rows, y.Cols/cols, rows(cols))
}

func (c *compiler) rope(o backend.Rope) error {
	qkv := c.info(o.QKV)
	a := kcpu.Rope{
		QKV: c.value(o.QKV), Q: c.value(o.Q), K: c.value(o.K), V: c.value(o.V),
		Heads: int32(o.Heads), KVHeads: int32(o.KVHeads), HeadDim: int32(o.HeadDim), Rotary: int32(o.Rotary),
		Format: int32(kernels.F32), Symbol: int32(qkv.Rows), Shared: flag(o.Shared), Interleaved: flag(o.Interleaved),
	}
	if o.Grid {
		a.Interleaved = kcpu.RopeGrid
	}
	if o.KVHeads > 0 {
		a.Format = int32(c.info(o.K).Format)
	}
	if o.Gated {
		a.Gate = c.value(o.Gate)
	}
	if o.Rotary > 0 {
		a.Angles = c.value(o.Angles)
	}
	if o.Tempered {
		a.QueryAngles = c.value(o.QueryAngles)
	}
	if n := o.Norm; n != nil {
		a.NormQ, a.NormK, a.Eps, a.Offset = c.weight(n.Q), c.weight(n.K), n.Eps, n.Offset
		a.Norm = kcpu.NormQK | flag(n.V)*kcpu.NormV | flag(n.Whole)*kcpu.NormWhole | flag(n.Whole || n.Each)*kcpu.NormEach | flag(n.Plain)*kcpu.NormPlain | flag(n.After)*kcpu.NormAfter
	}
	return add(c, kcpu.OpRope, a, qkv.Rows, o.Heads+o.KVHeads, rows(2*o.HeadDim))
}

func (c *compiler) conv(o backend.Conv) error {
	k, x := c.p.Classes[o.Class], c.info(o.X)
	a := kcpu.Conv{
		Pages: c.pages(o.Class, o.Layer), X: c.value(o.X), W: c.weight(o.W), Y: c.value(o.Y),
		Positions: address(c.s.Positions), First: address(c.s.First),
		Cols: int32(x.Cols), Kernel: int32(o.Kernel), Rows: int32(k.State.ConvRows),
	}
	a.Pages.Format = int32(k.State.ConvFormat)
	if i := c.p.Snapshots(o.Class); i >= 0 {
		a.Marks = c.pages(i, o.Layer)
	}
	return add(c, kcpu.OpConv, a, backend.PerToken, 4*x.Cols, worth)
}

func (c *compiler) deltaNet(o backend.DeltaNet) error {
	s := c.p.Classes[o.Class].State
	a := kcpu.Delta{
		Pages: c.pages(o.Class, o.Layer), QKV: c.value(o.QKV), BA: c.value(o.BA), ALog: c.weight(o.ALog), DtBias: c.weight(o.DtBias), Y: c.value(o.Y),
		Positions: address(c.s.Positions), First: address(c.s.First), Rows: address(c.s.Rows), CopyBytes: s.MatrixBytes(),
		KeyHeads: int32(o.KeyHeads), ValueHeads: int32(o.ValueHeads), KeyDim: int32(o.KeyDim), ValueDim: int32(o.ValueDim), Copies: int32(s.Copies),
	}
	a.Pages.K += s.ConvBytes()
	if i := c.p.Snapshots(o.Class); i >= 0 {
		a.Marks = c.pages(i, o.Layer)
		a.Marks.K += s.ConvBytes()
	}
	return add(c, kcpu.OpDelta, a, backend.PerToken, kcpu.DeltaUnits(o.ValueHeads, o.ValueDim), 1)
}

// activation returns the kernel arguments for the function of a gated MLP.
func activation(a backend.Activation) kcpu.Activation {
	k := kcpu.Activation{Kind: act(a.Act), Paired: flag(a.Paired), Limit: a.Limit, Alpha: a.Alpha, Shift: a.Shift}
	if a.Limit != 0 || a.Alpha != 0 || a.Shift != 0 {
		k.Kind = kcpu.Clamped
		if a.Limit <= 0 {
			k.Limit = float32(math.Inf(1))
		}
	}
	return k
}

func act(a backend.Act) int32 {
	switch a {
	case backend.GELUTanh:
		return kcpu.GELUTanh
	case backend.GELU:
		return kcpu.GELU
	}
	return kcpu.SiLU
}

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
