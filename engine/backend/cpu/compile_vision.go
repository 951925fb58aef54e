//go:build cgo && linux

package cpu

import (
	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// vision appends the ops of towers, and Merge.
func (c *compiler) vision(op backend.Op) error {
	switch o := op.(type) {
	case backend.Patches:
		in, n := c.d.encoder.in, c.info(o.Pixels).Cols
		return add(c, kcpu.OpPatches, kcpu.Patches{
			Item: address(in.Colours), ItemAcross: address(in.Across), ItemDown: address(in.Down), Pixels: c.value(o.Pixels), Across: c.value(o.Across), Down: c.value(o.Down),
			Cols: int32(n), Scale: o.Scale, Shift: o.Shift,
		}, backend.PerToken, 1, rows(n))
	case backend.AvgPool:
		n := c.info(o.X).Cols
		return add(c, kcpu.OpPool, kcpu.Pool{
			X: c.value(o.X), Across: c.value(o.Across), Y: c.value(o.Y), Cols: int32(n), Size: int32(o.Size), Square: int32(c.square()), Scale: o.Scale,
		}, backend.PerSample, 1, rows(n*o.Size*o.Size))
	case backend.Standardize:
		x := c.info(o.X)
		return add(c, kcpu.OpStandardize, kcpu.Standardize{X: c.value(o.X), Mean: c.weight(o.Mean), Scale: c.weight(o.Scale), Symbol: int32(x.Rows), Cols: int32(x.Cols)}, x.Rows, 1, rows(x.Cols))
	case backend.Resample:
		n := c.info(o.X).Cols
		return add(c, kcpu.OpResample, kcpu.Resample{
			X: c.value(o.X), Table: c.weight(o.Table), Across: c.value(o.Across), Down: c.value(o.Down), Format: int32(c.d.weights[o.Table].Format), Cols: int32(n), Side: int32(o.Side),
		}, backend.PerToken, 1, rows(4*n))
	case backend.Join:
		y := c.info(o.Y) // rows of X follow one another: a copy
		return add(c, kcpu.OpConcat, kcpu.Concat{A: c.value(o.X), B: c.value(o.X), Y: c.value(o.Y), Symbol: int32(y.Rows), ACols: int32(y.Cols)}, y.Rows, 1, rows(y.Cols))
	case backend.EncoderOutput:
		return c.encoded(o.X, kcpu.Encoded{At: address(c.d.encoder.in.At)})
	case backend.Merge:
		if o.Next {
			return c.encoded(o.X, kcpu.Encoded{Rows: address(c.s.EncodedNext)})
		}
		return c.encoded(o.X, kcpu.Encoded{Rows: address(c.s.Encoded)})
	}
	return backend.Unsupported(name, "op "+backend.OpName(op), "it has no kernel")
}

// encoded appends a copy between x and the Encoded arena.
func (c *compiler) encoded(x backend.Value, a kcpu.Encoded) error {
	in := c.info(x)
	a.X, a.Encoded, a.Symbol, a.Cols = c.value(x), c.d.arenas[backend.Encoded].address(0), int32(in.Rows), int32(in.Cols)
	return add(c, kcpu.OpEncoded, a, in.Rows, 1, rows(in.Cols))
}

// square returns the order of the program's patches.
func (c *compiler) square() int {
	for _, op := range c.p.Ops {
		if o, ok := op.(backend.Patches); ok {
			return o.Square
		}
	}
	return 0
}

// places adds the positions of patches, or the three of tokens.
func (c *compiler) places(o backend.Angles, a *kcpu.Angles) {
	if o.Grid {
		a.Across, a.Down, a.Joined = c.value(o.Across), c.value(o.Down), flag(o.Joined)
		a.Half /= 2
	}
	if o.Sections != [3]int{} {
		a.Axes = address(c.s.MRopePositions)
		for i, n := range o.Sections {
			a.Sections[i] = int32(n)
		}
	}
}
