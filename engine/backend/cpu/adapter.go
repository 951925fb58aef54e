//go:build cgo && linux

package cpu

import (
	"fmt"
	"slices"

	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// adapt appends the two phases of an Adapt: A·X, then its product with B.
func (c *compiler) adapt(o backend.Adapt) error {
	x, y := c.info(o.X), c.info(o.Y)
	a := kcpu.Adapt{
		X: c.value(o.X), Mid: c.value(o.Mid), Y: c.value(o.Y), A: c.weight(o.A), B: c.weight(o.B), Slots: address(c.s.Adapters),
		Symbol: int32(y.Rows), In: int32(x.Cols), Out: int32(y.Cols), Rank: int32(o.Rank), Modules: int32(o.Modules),
		Format: int32(c.d.weights[o.A].Format), NumSlots: int32(c.p.AdapterSlots),
	}
	if y.Rows == backend.PerSample {
		a.Rows = address(c.s.Rows)
	} else {
		a.Slots += uintptr(4 * c.p.Bucket.ChunkStart(y.Rows))
	}
	for m, end := range o.Ends {
		a.Ends[m] = int32(end)
	}
	c.adapters = append(c.adapters, len(c.phases), len(c.phases)+1)
	if err := add(c, kcpu.OpAdaptDown, a, y.Rows, o.Modules*o.Rank, rows(2*x.Cols)); err != nil {
		return err
	}
	c.last().least = 1
	if err := add(c, kcpu.OpAdaptUp, a, y.Rows, y.Cols, rows(2*o.Rank)); err != nil {
		return err
	}
	c.last().least = 1
	return nil
}

// adapted reports whether a token of the step has an adapter.
func adapted(s *backend.Step, tokens int) bool {
	return s.Adapters != nil && slices.Max(s.Adapters[:tokens]) >= 0
}

// WriteRows implements backend.AdapterWriter.
func (d *device) WriteRows(i backend.WeightID, row0 int, data []byte) error {
	if d.pool == nil {
		return errClosed
	}
	d.drain()
	if i < 0 || int(i) >= len(d.weights) {
		return fmt.Errorf("backend %s: rows of weight %d, there are %d", name, i, len(d.weights))
	}
	at, err := d.r.Weights[i].RowsAt(row0, data)
	if err != nil {
		return fmt.Errorf("backend %s: %w", name, err)
	}
	copy(d.arenas[backend.Weights].slice(d.weights[i].off+at, int64(len(data))), data)
	return nil
}
