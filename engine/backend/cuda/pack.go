//go:build linux && cgo && cuda

package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// Pack stores weight i on the device in the format of Layout.Weight. Rows are read from the
// checkpoint into pinned memory, where a kernel reads them and writes panels. Dummy weights
// are generated on the device.
func (d *device) Pack(i int, src backend.RowReader) error {
	if i < 0 || i >= len(d.offsets) {
		return fmt.Errorf("backend %s: Pack of weight %d, there are %d", name, i, len(d.offsets))
	}
	if d.joined {
		return fmt.Errorf("backend %s: Pack of weight %d: the weights are those of another device", name, i)
	}
	spec, base := d.r.Weights[i], d.arenas[backend.Weights]+driver.Address(d.offsets[i])
	err := d.do(func() error {
		if err := d.staging.open(d.ctx); err != nil {
			return err
		}
		if spec.Use&backend.Vector != 0 {
			return d.packVector(spec, base, src)
		}
		m, err := d.layout.matrix(spec)
		if err != nil {
			return err
		}
		return d.packMatrix(m, base, src)
	})
	return d.named(err) // the caller adds the weight's name
}

// packVector stores a vector, or a stack of them, as F32.
func (d *device) packVector(w backend.WeightSpec, at driver.Address, src backend.RowReader) error {
	out := make([]float32, 0, w.Elems())
	r := reader{src: src}
	for e := range max(1, w.Experts) {
		for _, p := range w.Parts {
			rows, cols := p.Rows, w.Cols
			if p.Elems > 0 {
				rows = max(1, p.Rows)
				cols = p.Elems / rows
			}
			if int64(len(out))+int64(rows*cols) > w.Elems() {
				return fmt.Errorf("its parts have more than %d×%d elements", w.Rows, w.Cols)
			}
			x, err := r.vector(p, e, rows, cols)
			if err != nil {
				return err
			}
			out = append(out, x...)
		}
	}
	if int64(len(out)) != w.Elems() {
		return fmt.Errorf("its parts have %d elements, not %d×%d", len(out), w.Rows, w.Cols)
	}
	return d.staging.send(at, bytesAt(out))
}

// packing is a matrix, or a stack of experts' matrices, that is being packed at address base.
type packing struct {
	d    *device
	m    matrix
	base driver.Address
	src  backend.RowReader
	raw  kernels.Format // of the rows copied to the device: the stored format, or the one that a kernel quantizes
	// order is the order of panels, and table its device address. Both are zero for weights
	// stored row by row.
	order cuda.PanelOrder
	table driver.Address
	// scales are the scales of rows that are quantized on the host; nil: a kernel computes
	// them, or the checkpoint has them.
	scales []float32
}

// packMatrix stores a matrix, or a stack, followed by the scales.
func (d *device) packMatrix(m matrix, base driver.Address, src backend.RowReader) error {
	k := packing{d: d, m: m, base: base, src: src, raw: rawOf(m)}
	if m.Target != kernels.Invalid && m.Target != m.Source && k.raw == m.stored {
		k.scales = make([]float32, m.count)
	}
	spans, err := k.spans()
	if err != nil {
		return err
	}
	if m.panels {
		if err := k.open(); err != nil {
			return err
		}
	}
	if make := k.made(); make != nil {
		err = d.staging.with(make)
	} else {
		err = k.read(spans)
	}
	if err != nil || m.count == 0 || k.raw != m.stored {
		return err
	}
	scales := k.scales
	if scales == nil {
		scales = make([]float32, m.count)
		r := reader{src: src, scaling: m.Scaling, group: m.GroupSize, spec: m.WeightSpec}
		if err := r.scales(m, scales); err != nil {
			return err
		}
	}
	return d.staging.send(base+driver.Address(m.scales), bytesAt(scales))
}

// rawOf returns the format that a kernel reads: the checkpoint's floats if the kernel
// quantizes them row by row, else the stored format.
func rawOf(m matrix) kernels.Format {
	if !m.panels || m.stored != kernels.F8E4M3 || m.scaling != backend.PerChannel || len(m.Parts) == 0 || cuda.QuantizeKernel(m.Parts[0].Format) == "" {
		return m.stored
	}
	for _, p := range m.Parts {
		if p.Format != m.Parts[0].Format || p.Scale != "" {
			return m.stored
		}
	}
	return m.Parts[0].Format
}

// open copies the order of panels to the device.
func (k *packing) open() error {
	order, ok := k.d.staging.order(k.m.stored)
	if !ok {
		return backend.Unsupported(name, "packing as "+k.m.stored.String(), "it has no panels")
	}
	k.order = order
	return k.d.staging.with(func(p *piece) (err error) {
		k.table, err = k.d.table(p, bytesAt(order.From))
		return err
	})
}

// span is a run of rows of one matrix of a weight: whole panels. With halves, they are rows of both: cuda.GateUpRow.
type span struct{ expert, row, rows int }

// spans splits a weight into spans that fit a piece, in groups that one goroutine has to read
// together: a transposed matrix is one group. It fails if the parts do not have the weight's
// shape.
func (k *packing) spans() ([][]span, error) {
	m, rows, turned := k.m, 0, false
	for _, p := range m.Parts {
		rows, turned = rows+p.Rows, turned || p.Transposed
		if p.Elems > 0 || p.Values != nil {
			return nil, fmt.Errorf("part %s is of a vector", p.Tensor)
		}
	}
	if rows != m.Rows {
		return nil, fmt.Errorf("its parts have %d rows, not %d", rows, m.Rows)
	}
	unit := 1
	if m.panels {
		unit = cuda.PanelRows
	}
	step := pieceBytes / int(k.raw.Bytes(int64(m.Cols))) / unit * unit
	if step == 0 {
		return nil, backend.Unsupported(name, fmt.Sprintf("rows of %d", m.Cols), fmt.Sprintf("%d of them are more than %d bytes", unit, pieceBytes))
	}
	var out [][]span
	for e := range max(1, m.Experts) {
		var all []span
		for row := 0; row < m.Rows; row += step {
			all = append(all, span{e, row, min(step, m.Rows-row)})
		}
		for turned && len(all) > 0 {
			out, all = append(out, all), nil
		}
		for _, s := range all {
			out = append(out, []span{s})
		}
	}
	return out, nil
}

// read copies all spans to the device, as many at once as there are pieces.
func (k *packing) read(spans [][]span) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(len(spans), pieces) {
		wg.Go(func() {
			err := k.d.ctx.Do(func() error {
				r := rows{reader{src: k.src, scaling: k.m.Scaling, group: k.m.GroupSize, spec: k.m.WeightSpec}, k}
				for n := next.Add(1); n <= int64(len(spans)) && failed.Load() == nil; n = next.Add(1) {
					for _, s := range spans[n-1] {
						if err := k.d.staging.with(func(p *piece) error { return r.send(p, s) }); err != nil {
							return err
						}
					}
				}
				return nil
			})
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// args returns a span's kernel arguments, except the source address.
func (k *packing) args(p *piece, s span) cuda.PanelArgs {
	panel := k.m.each / up(int64(k.m.Rows), cuda.PanelRows) * cuda.PanelRows
	return cuda.PanelArgs{
		Order: k.table, Panels: k.base + driver.Address(int64(s.expert)*k.m.each+int64(s.row/cuda.PanelRows)*panel), Bad: p.bad,
		Count: int32(s.rows), RowBytes: int32(k.m.stored.Bytes(int64(k.m.Cols))),
		UnitBytes: int32(k.order.UnitBytes), Bits: int32(k.order.Bits), Numberless: k.order.Numberless, Half: int32(k.halfOf(s)),
	}
}

// halfOf returns the rows of a span that are of each half, whose panels have both; 0: panels have rows in their order.
func (k *packing) halfOf(s span) int {
	if k.m.half == 0 {
		return 0
	}
	return s.rows / 2
}

// pack launches the kernel that writes the panels of a span.
func (k *packing) pack(p *piece, s span, a cuda.PanelArgs) error {
	grid := k.order.PanelGrid(s.rows, int(a.RowBytes))
	if k.raw == k.m.stored {
		return launchOn(k.d, p, "panels", grid, a)
	}
	grid[1] = 1
	first := s.row
	if k.m.half > 0 {
		first /= 2
	}
	scales := k.base + driver.Address(k.m.scales+4*int64(s.expert*k.m.Rows+first))
	return launchOn(k.d, p, cuda.QuantizeKernel(k.raw), grid, cuda.QuantizeArgs{PanelArgs: a, Scales: scales, ScalesHalf: int64(k.m.half)})
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// bytesAt returns s as bytes.
func bytesAt[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(one)))
}
