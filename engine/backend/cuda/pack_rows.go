//go:build linux && cgo && cuda

package cuda

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels"
)

// rows fills pieces with spans.
type rows struct {
	reader
	k *packing
}

// send reads a span into a piece and launches its kernel.
func (r *rows) send(p *piece, s span) error {
	m, n := r.k.m, s.rows*int(r.k.raw.Bytes(int64(r.k.m.Cols)))
	if err := r.fill(s, p.host[:n]); err != nil {
		return err
	}
	if !m.panels {
		return p.copy(r.k.base+driver.Address(int64(s.expert)*m.each+int64(s.row)*m.stored.Bytes(int64(m.Cols))), n)
	}
	a := r.k.args(p, s)
	a.Rows = p.at
	return r.k.pack(p, s, a)
}

// fill reads a span in the format that the kernel reads: of halves, the rows of the first and then those of the second.
func (r *rows) fill(s span, dst []byte) error {
	half := r.k.halfOf(s)
	if half == 0 {
		return r.run(s, dst)
	}
	s.row, s.rows = s.row/2, half
	if err := r.run(s, dst[:len(dst)/2]); err != nil {
		return err
	}
	s.row += r.k.m.half
	return r.run(s, dst[len(dst)/2:])
}

// run reads rows that follow each other.
func (r *rows) run(s span, dst []byte) error {
	size := r.k.raw.Bytes(int64(r.k.m.Cols))
	begin := 0 // row of the matrix that the current part begins with
	for _, p := range r.k.m.Parts {
		from, to := max(s.row, begin), min(s.row+s.rows, begin+p.Rows)
		if from < to {
			if err := r.part(p, s.expert, from-begin, from, dst[int64(from-s.row)*size:int64(to-s.row)*size]); err != nil {
				return err
			}
		}
		begin += p.Rows
	}
	return nil
}

// part fills dst with rows of a part. The first is row of the part and row at of the matrix.
func (r *rows) part(p backend.Part, expert, row, at int, dst []byte) error {
	m, cols := r.k.m, r.k.m.Cols
	n := len(dst) / int(r.k.raw.Bytes(int64(cols)))
	if p.Format == r.k.raw {
		return r.read(p, expert, row, n, dst)
	}
	x, err := r.widen(p, expert, row, n)
	if err != nil {
		return err
	}
	if m.stored == kernels.F8E4M3 || m.stored == kernels.F8E5M2 {
		return r.quantize(x, expert*m.Rows+at, cols, dst)
	}
	return round(m.stored, x, dst)
}

// quantize quantizes rows of x, each with its own scale.
func (r *rows) quantize(x []float32, at, cols int, dst []byte) error {
	if r.k.m.scaling != backend.PerChannel || r.k.m.stored != kernels.F8E4M3 {
		return backend.Unsupported(name, "quantization to "+r.k.m.stored.String()+" "+r.k.m.scaling.String(), "rows get a scale each, as f8_e4m3")
	}
	for i := range len(x) / cols {
		scale, ok := quantizeE4M3(x[i*cols:(i+1)*cols], dst[i*cols:(i+1)*cols])
		if !ok {
			return errNaN
		}
		r.k.scales[at+i] = scale
	}
	return nil
}
