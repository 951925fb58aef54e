package ref

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/ref"
)

type adapt struct{ backend.Adapt }

func (o adapt) units(l *launch) int { return l.rowsOf(o.Y) }
func (o adapt) run(l *launch, worker, r int) error {
	slot := l.adapterOf(o.Y, r)
	if slot < 0 {
		return nil
	}
	a, in, out := l.d.weights[o.A], l.cols(o.X), l.cols(o.Y)
	ref.Adapt(ref.AdaptArgs{
		X: rowOf(l.floats(o.X), r, in), Mid: rowOf(l.floats(o.Mid), r, l.cols(o.Mid)), Y: rowOf(l.floats(o.Y), r, out),
		A: a.data, B: l.d.weights[o.B].data, Format: a.Format, Slot: slot, Rank: o.Rank, Ends: o.Ends[:o.Modules],
		Row: take[float32](l.workspace(worker), max(in, out), 4),
	})
	return nil
}

// adapterOf returns the slot of the adapter of row r of a value, −1 if it has none.
func (l *launch) adapterOf(v backend.Value, r int) int {
	rows := l.e.p.Values[v].Rows
	if rows == backend.PerSample {
		return int(l.s.Adapters[l.s.Rows[r]])
	}
	return int(l.s.Adapters[l.e.p.Bucket.ChunkStart(rows)+r])
}

// WriteRows implements backend.AdapterWriter.
func (d *device) WriteRows(i backend.WeightID, row0 int, data []byte) error {
	d.drain()
	if i < 0 || int(i) >= len(d.weights) {
		return fmt.Errorf("backend %s: rows of weight %d, there are %d", name, i, len(d.weights))
	}
	w := d.r.Weights[i]
	at, err := w.RowsAt(row0, data)
	if err != nil {
		return fmt.Errorf("backend %s: %w", name, err)
	}
	copy(d.weights[i].data[at:], data)
	return nil
}
