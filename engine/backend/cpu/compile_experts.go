//go:build cgo && linux

package cpu

import (
	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// experts appends the phases of a mixture of experts, once for each ExpertRows rows.
func (c *compiler) experts(o backend.Experts) error {
	shape, err := c.d.layout.expertShape(c.p, o)
	if err != nil {
		return err
	}
	up, err := c.stack(o.GateUp, o.GateUpBias)
	if err != nil {
		return err
	}
	down, err := c.stack(o.Down, o.DownBias)
	if err != nil {
		return err
	}
	glu, ok := kcpu.Kernel(kcpu.OpGLU, c.d.layout.variant)
	if !ok {
		return backend.Unsupported(name, "op experts", "this binary has no "+c.d.layout.variant+" kernel of its activation")
	}
	r, x := shape.Workspace(), c.info(o.X)
	up.X, up.Y, down.X, down.Y = c.workspace(r.Picked), c.workspace(r.Up), c.workspace(r.Act), c.workspace(r.Picked)
	for row := 0; row < shape.Rows; row += kcpu.ExpertRows {
		a := kcpu.Experts{
			X: c.value(o.X), IDs: c.value(o.Ids), Weights: c.value(o.Weights), Y: c.value(o.Y), GateUp: up, Down: down, GLU: glu,
			First: c.workspace(r.First), Before: c.workspace(r.Before), Place: c.workspace(r.Place),
			Picked: c.workspace(r.Picked), Up: c.workspace(r.Up), Act: c.workspace(r.Act), Shared: c.workspace(r.Shared), Work: c.workspace(r.Bytes), WorkBytes: r.Each,
			Symbol: int32(x.Rows), Experts: int32(shape.Experts), Top: int32(o.Top), Cols: int32(x.Cols), Width: int32(o.Width),
			Row0: int32(row), Most: kcpu.ExpertRows, Activation: activation(o.Activation),
		}
		at := put(c.mem, a)
		for p := kcpu.ExpertsSort; p <= kcpu.ExpertsSum; p++ {
			ph := phase{fn: p.Address(), args: at, symbol: int32(x.Rows), units: 1, time: c.clock()}
			switch p {
			case kcpu.ExpertsSort:
				ph.units, ph.grain = 0, 1 // one part
			case kcpu.ExpertsGather, kcpu.ExpertsPrepareUp, kcpu.ExpertsActivate, kcpu.ExpertsPrepareDown, kcpu.ExpertsSum:
				ph.grain = int32(rows(o.Top * max(o.Width, x.Cols)))
			}
			c.phases = append(c.phases, ph)
		}
	}
	return nil
}

// stack returns the kernel arguments for the weight of one of the two products.
func (c *compiler) stack(w, bias backend.WeightID) (kcpu.Stack, error) {
	k, err := c.kernel(w)
	if err != nil {
		return kcpu.Stack{}, err
	}
	spec, packed := c.p.Weights[w], c.d.weights[w]
	tile, bytes := c.d.layout.matrix(spec, packed.Format).Tile()
	return kcpu.Stack{
		W: c.weight(w), Bias: c.weight(bias), Kernel: k.Address(), Bytes: packed.Bytes / int64(spec.Experts), TileBytes: bytes,
		In: int32(spec.Cols), Out: int32(spec.Rows), Format: k.Code(), Tile: int32(tile),
	}, nil
}
