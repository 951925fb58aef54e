package cuda

import (
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
)

// adapt appends the two kernels of an Adapt. Slots are step data: a captured graph serves steps of any
// adapters.
func (c *lowering) adapt(o backend.Adapt) error {
	x, y := c.info(o.X), c.info(o.Y)
	if y.Rows != backend.PerToken && y.Rows != backend.PerSample {
		return missing(o, "of chunks of tokens")
	}
	m, err := c.l.matrix(c.p.Weights[o.A])
	if err != nil {
		return err
	}
	a := cuda.AdaptArgs{
		X: c.value(o.X), Mid: c.value(o.Mid), Y: c.value(o.Y), A: c.weight(o.A), B: c.weight(o.B), Slots: c.at.step.adapters,
		In: int32(x.Cols), Out: int32(y.Cols), Rank: int32(o.Rank), Modules: int32(o.Modules),
	}
	if y.Rows == backend.PerSample {
		a.Tokens = c.at.step.rows
	}
	for i, end := range o.Ends {
		a.Ends[i] = int32(end)
	}
	k := cuda.ChooseAdapt(m.stored, !c.v.few())
	rows := bind(unsafe.Offsetof(a.Rows), y.Rows, 1)
	warps, blocks := k.DownWarps(o.Modules * o.Rank)
	if err := add(c, k.Down, grid{each(y.Rows, 1, k.DownRows), fixed(blocks), fixed(1)}, 32*warps, 0, a, rows); err != nil {
		return err
	}
	threads := lanes(y.Cols, cuda.AdaptThreads)
	return add(c, k.Up, grid{each(y.Rows, 1, k.UpRows), fixed(ceil(y.Cols, threads)), fixed(1)}, threads, 0, a, rows)
}
