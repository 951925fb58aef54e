//go:build cgo && linux

package cpu

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// packChunk is about how many bytes of a tensor are read at a time, so that input and output
// stay in a processor's own cache. A thread uses a few times as much, and twice the size of a
// matrix that is stored as [in, out].
const packChunk = 256 << 10

// Pack reads weight i and stores it in the format of Layout.Weight. Spans of rows run on as
// many goroutines as there are compute threads; concurrent calls share that limit.
func (d *device) Pack(i int, src backend.RowReader) error {
	if d.pool == nil {
		return errClosed
	}
	if i < 0 || i >= len(d.weights) {
		return fmt.Errorf("backend %s: Pack of weight %d, there are %d", name, i, len(d.weights))
	}
	if d.joined {
		return fmt.Errorf("backend %s: Pack of weight %d: the weights are those of another device", name, i)
	}
	if d.cacheUse.Loaded {
		return fmt.Errorf("backend %s: Pack of weight %d: the weights were read from %s", name, i, d.cacheUse.Path)
	}
	spec, w := d.r.Weights[i], d.weights[i]
	out := d.arenas[backend.Weights].slice(w.off, w.Bytes)
	for _, s := range spec.Segments() {
		p, err := d.layout.Weight(s)
		if err == nil {
			err = d.pack(s, p.Format, out[:p.Bytes], src)
		}
		if err != nil {
			return err
		}
		out = out[p.Bytes:]
	}
	if len(out) == 0 {
		return nil
	}
	return d.pack(spec, w.Format, out, src)
}

// pack stores a weight of one format in out.
func (d *device) pack(spec backend.WeightSpec, to kernels.Format, out []byte, src backend.RowReader) error {
	spans, err := spansOf(spec)
	if err != nil {
		return fmt.Errorf("backend %s: weight %s: %w", name, spec.Name, err)
	}
	k := packer{spec: spec, to: to, matrix: d.layout.matrix(spec, to), src: src, each: len(out) / max(1, spec.Experts), out: out}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(len(spans), cap(d.packing)) {
		wg.Go(func() {
			d.packing <- struct{}{}
			defer func() { <-d.packing }()
			k := k
			for n := next.Add(1); n <= int64(len(spans)) && failed.Load() == nil; n = next.Add(1) {
				if err := k.span(spans[n-1]); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("backend %s: weight %s: %w", name, spec.Name, *err)
	}
	return nil
}

// packer stores spans of a weight, one after the other.
type packer struct {
	spec     backend.WeightSpec
	matrix   kcpu.Matrix // a matrix to multiply
	expert   int
	to       kernels.Format
	each     int    // bytes of a matrix of the stack
	out      []byte // the whole weight; within span, the span's matrix
	src      backend.RowReader
	done     int64 // elements of the matrix stored so far
	raw      []byte
	second   []byte // for a part of two tensors
	wide     []float32
	narrow   []byte
	scales   scaleReader
	repeated []float32 // the scales of a row
}

// span stores the rows of a span in order.
func (k *packer) span(s span) error {
	p, whole := s.part, k.out
	k.expert, k.done, k.out = s.expert, s.at, whole[s.expert*k.each:][:k.each]
	defer func() { k.out = whole }()
	if p.Values != nil {
		copy(floats(k.out[4*k.done:]), p.Values)
		return nil
	}
	src, first := k.src, p.Row0+k.expert*p.Stride
	if p.Transposed {
		transposed, err := backend.Transpose(k.src, p, k.expert, s.rows, s.cols)
		if err != nil {
			return err
		}
		src, first, p.Cols = transposed, 0, 0
	}
	k.scales = scaleReader{part: p, scaling: k.spec.Scaling, group: k.spec.GroupSize, expert: k.expert, cols: s.cols, src: k.src}
	size := p.Format.Bytes(int64(s.cols))
	step := chunkRows(size)
	k.raw = grow(k.raw, int(size)*min(step, s.rows))
	for row := s.row; row < s.row+s.rows; row += step {
		n := min(step, s.row+s.rows-row)
		b := k.raw[:int64(n)*size]
		if err := k.read(src, p, first+row, n, b); err != nil {
			return err
		}
		if err := k.store(p, row, b, n, s.cols); err != nil {
			return err
		}
	}
	return nil
}

// read fills b with n rows of a part. It joins MXFP4 from its two tensors.
func (k *packer) read(src backend.RowReader, p backend.Part, row, n int, b []byte) error {
	if p.Format != kernels.MXFP4 || p.Scale == "" {
		return backend.ReadPart(src, p, row, n, b)
	}
	cols := k.spec.Cols
	blocks := n * cols / mxElems
	k.second = grow(k.second, len(b))
	halves, exponents := k.second[:16*blocks], k.second[16*blocks:17*blocks]
	if err := backend.ReadMXFP4(src, p, row, n, cols, halves, exponents); err != nil {
		return err
	}
	kernels.JoinBlocks(halves, exponents, b)
	return nil
}

// mxElems is how many elements an MXFP4 block has.
const mxElems = 32

// store stores n rows of a part, the first being its row number row.
func (k *packer) store(p backend.Part, row int, b []byte, n, cols int) error {
	elems := n * cols
	if k.spec.Use&backend.Vector != 0 {
		kcpu.Dequantize(p.Format, b, floats(k.out[4*k.done:])[:elems])
		k.done += int64(elems)
		return nil
	}
	at := int(k.done / int64(k.spec.Cols))
	var err error
	switch {
	case p.Format == k.to:
		err = k.storeScales(row, at, b, n)
	case k.to == kernels.F8E4M3:
		b, err = k.quantize(p, row, at, b, n)
	default:
		b, err = k.convert(p, row, b, n)
	}
	if err != nil {
		return err
	}
	if k.spec.Use&backend.Multiply == 0 {
		copy(k.out[k.to.Bytes(k.done):], b)
	} else {
		k.matrix.PackRows(k.out, at, b)
	}
	k.done += int64(elems)
	return nil
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// floats returns b as float32; b is aligned to 4.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
