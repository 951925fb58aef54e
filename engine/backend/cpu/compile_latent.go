//go:build cgo && linux

package cpu

import (
	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

func (c *compiler) latentRope(o backend.LatentRope) error {
	kv := c.info(o.KV)
	return add(c, kcpu.OpLatentRope, kcpu.LatentRope{
		Q: c.value(o.Q), KV: c.value(o.KV), Angles: c.value(o.Angles), Norm: c.weight(o.Norm), Query: c.value(o.Query), K: c.value(o.K), V: c.value(o.V),
		Heads: int32(o.Heads), Nope: int32(o.Nope), Rank: int32(o.Rank), Rotary: int32(o.Rotary),
		Format: int32(c.info(o.K).Format), Symbol: int32(kv.Rows), Interleaved: flag(o.Interleaved), Eps: o.Eps,
	}, kv.Rows, o.Heads+1, rows(2*o.Rotary))
}

// headLinear appends the products of all heads as one phase. A part prepares inputs for itself.
func (c *compiler) headLinear(o backend.HeadLinear) error {
	k, err := c.kernel(o.W)
	if err != nil {
		return err
	}
	w, packed, x, y := c.p.Weights[o.W], c.d.weights[o.W], c.info(o.X), c.info(o.Y)
	r, err := c.d.layout.headWorkspace(c.p, o)
	if err != nil {
		return err
	}
	err = add(c, kcpu.OpHeadLinear, kcpu.HeadLinear{
		W: c.weight(o.W), X: c.value(o.X), LdX: int64(x.Cols), Y: c.value(o.Y), LdY: int64(y.Cols), In: int32(w.Cols), Out: int32(w.Rows), Format: k.Code(),
		SharedBytes: r.shared, WorkBytes: r.each, Kernel: k.Address(), Parts: c.workspace(0), Stride: r.shared + r.each,
		Bytes: packed.Bytes / int64(o.Heads), NextX: int64(x.Cols / o.Heads), NextY: int64(y.Cols / o.Heads), Symbol: int32(y.Rows), Heads: int32(o.Heads),
	}, y.Rows, 1, 0)
	if err == nil {
		c.last().least = 1
	}
	return err
}
