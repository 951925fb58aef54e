package backend

import "vapp.dev/kernels"

// op checks one op; ops it does not know are left to the backend's refusal.
func (c *checker) op(op Op) {
	f32, i32 := kernels.F32, kernels.I32
	switch o := op.(type) {
	case Tokens:
		c.value("Out", o.Out, i32, PerToken, 1)
	case StoreTokens:
		c.value("Ids", o.Ids, i32, PerToken, 1)
		c.that(c.class(o.Class, 0).Plane, "class %d has no token plane", o.Class)
	case Embed:
		c.value("Ids", o.Ids, i32, PerToken, 1)
		y := c.value("Y", o.Y, f32, PerToken, 0)
		c.weight("Table", o.Table, Lookup, 0, y.Cols)
	case Norm:
		y := c.like(o.Y)
		c.value("Y", o.Y, f32, y.Rows, 0)
		c.value("X", o.X, f32, y.Rows, y.Cols)
		if o.Residual != NoValue {
			c.value("Residual", o.Residual, f32, y.Rows, y.Cols)
		}
		c.weight("W", o.W, Vector, 1, y.Cols)
	case Linear:
		y := c.like(o.Y)
		c.value("Y", o.Y, f32, y.Rows, 0)
		x := c.value("X", o.X, f32, y.Rows, 0)
		c.weight("W", o.W, Multiply, y.Cols, x.Cols)
		if o.Bias != NoWeight {
			c.weight("Bias", o.Bias, Vector, 1, y.Cols)
		}
		c.that(o.X != o.Y, "X is Y")
	case SwiGLU:
		y := c.like(o.Y)
		c.value("Y", o.Y, f32, y.Rows, 0)
		c.value("X", o.X, f32, y.Rows, 2*y.Cols)
		c.that(o.X != o.Y, "X is Y")
	case Gather:
		x := c.like(o.X)
		c.value("X", o.X, x.Format, PerToken, 0)
		c.value("Y", o.Y, x.Format, PerSample, x.Cols)
	case Sample:
		c.value("Logits", o.Logits, f32, PerSample, c.p.Vocab)
		c.that(c.class(o.Class, 0).Plane, "class %d has no token plane", o.Class)
	case AllReduce:
		x := c.like(o.X)
		c.value("X", o.X, f32, x.Rows, 0)
	case AllGather:
		x := c.like(o.X)
		c.value("X", o.X, f32, x.Rows, 0)
		c.value("Y", o.Y, f32, x.Rows, x.Cols*c.p.Shard.World)
	default:
		c.attention(op)
	}
}

func (c *checker) attention(op Op) {
	switch o := op.(type) {
	case Angles:
		y := c.value("Y", o.Y, kernels.F32, PerToken, 0)
		c.weight("InvFreq", o.InvFreq, Vector, 1, y.Cols/2)
		c.that(y.Cols%2 == 0, "Y has %d columns, an odd number", y.Cols)
	case Rope:
		c.heads(o.Heads, o.KVHeads, o.HeadDim)
		c.value("QKV", o.QKV, kernels.F32, PerToken, (o.Heads+2*o.KVHeads)*o.HeadDim)
		c.that(o.Rotary > 0 && o.Rotary%2 == 0 && o.Rotary <= o.HeadDim, "%d rotated dimensions of %d", o.Rotary, o.HeadDim)
		c.value("Angles", o.Angles, kernels.F32, PerToken, o.Rotary)
		c.value("Q", o.Q, kernels.F32, PerToken, o.Heads*o.HeadDim)
		f := c.like(o.K).Format
		c.that(storable(f), "K is %v; f32, f16 and bf16 can be stored", f)
		c.value("K", o.K, f, PerToken, o.KVHeads*o.HeadDim)
		c.value("V", o.V, f, PerToken, o.KVHeads*o.HeadDim)
	case Attention:
		c.heads(o.Heads, o.KVHeads, o.HeadDim)
		k := c.class(o.Class, o.Layer)
		c.that(k.KVHeads == o.KVHeads && k.HeadDim == o.HeadDim, "class %s has %d heads of %d, not %d of %d", k.Name, k.KVHeads, k.HeadDim, o.KVHeads, o.HeadDim)
		c.value("Q", o.Q, kernels.F32, PerToken, o.Heads*o.HeadDim)
		c.value("Y", o.Y, kernels.F32, PerToken, o.Heads*o.HeadDim)
		c.value("K", o.K, k.Format, PerToken, o.KVHeads*o.HeadDim)
		c.value("V", o.V, k.Format, PerToken, o.KVHeads*o.HeadDim)
	case StoreKV:
		k := c.class(o.Class, o.Layer)
		c.value("K", o.K, k.Format, PerToken, k.KVHeads*k.HeadDim)
		c.value("V", o.V, k.Format, PerToken, k.KVHeads*k.HeadDim)
	}
}

func storable(f kernels.Format) bool {
	return f == kernels.F32 || f == kernels.F16 || f == kernels.BF16
}
