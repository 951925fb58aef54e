package vision

import (
	"runtime"
	"sync"

	"vapp.dev/engine/vision/rgb"
	"vapp.dev/kernels/cpu/isa"
	"vapp.dev/kernels/cpu/pixels"
)

// Resize fills dst with src, resampled to the size of dst. Its bytes are those of
// Image.resize(size, BICUBIC) of Pillow 13: one axis is resampled and rounded to bytes, then the
// other. It runs on as many goroutines as Go runs at once. Neither image may be empty.
func Resize(dst, src *rgb.Image) {
	resample(src, dst.Width, dst.Height, pillow, func(y int, row []byte) { copy(dst.Row(y), row) })
}

// grain is the number of products for which a goroutine is worth its start.
const grain = 1 << 20

// resample calls emit with each row of src after resizing to width × height. Calls are from several
// goroutines, each for a row of its own; row is valid until emit returns.
func resample(src *rgb.Image, width, height int, by resampling, emit func(y int, row []byte)) {
	r := newResampler(src, width, height, by, emit)
	n := min(runtime.GOMAXPROCS(0), height, 1+r.work/grain)
	var wait sync.WaitGroup
	for i := 1; i < n; i++ {
		wait.Go(func() { r.strip(height*i/n, height*(i+1)/n) })
	}
	r.strip(0, height/n)
	wait.Wait()
}

// resampler resizes one image. A filter is nil where the axis keeps its size.
type resampler struct {
	src          *rgb.Image
	width        int
	across, down *filter
	work         int  // products
	columns      bool // are resampled first
	emit         func(y int, row []byte)
	passes       func() passes // for one goroutine
}

// newPasses returns the passes in C where they are there for this processor, else those in Go.
func newPasses() passes {
	if k, ok := pixels.Best(isa.Variants()); ok {
		return &native{Kernel: k}
	}
	return &portable{}
}

func newResampler(src *rgb.Image, width, height int, by resampling, emit func(y int, row []byte)) *resampler {
	r := &resampler{src: src, width: width, work: width * height, columns: width == src.Width || by == pillow && downFirst(src, width, height), emit: emit, passes: newPasses}
	if width != src.Width {
		r.across = newFilter(src.Width, width, by)
		r.work += 3 * len(r.across.W) * src.Height
	}
	if height != src.Height {
		r.down = newFilter(src.Height, height, by)
		r.work += 3 * len(r.down.W) * width
	}
	return r
}

// strip emits rows from to to of the result.
func (r *resampler) strip(from, to int) {
	switch {
	case r.across == nil && r.down == nil:
		for y := from; y < to; y++ {
			r.emit(y, r.src.Row(y))
		}
	case r.columns:
		r.columnsFirst(from, to)
	default:
		r.rowsFirst(from, to)
	}
}

// downFirst returns whether Pillow resamples columns before rows: where the height shrinks by more
// than twice as many pixels as the width. Older releases than 13 always begin with rows.
func downFirst(src *rgb.Image, width, height int) bool {
	d := src.Height - height
	return d > 0 && d > 2*(src.Width-width)
}

// lines returns the rows of the source.
func (r *resampler) lines() pixels.Lines {
	return pixels.Lines{Pix: r.src.Pix, Stride: 3 * r.src.Width, Ring: r.src.Height}
}

// newRing returns n rows of size bytes, of which each stands for every n-th.
func newRing(n, size int) pixels.Lines {
	return pixels.Lines{Pix: make([]byte, n*size), Stride: size, Ring: n}
}

// rowsFirst emits rows from to to of the result. Rows of the source pass through a ring: sixteen are
// resampled at a time, and each row of the result reads those that its weights need.
func (r *resampler) rowsFirst(from, to int) {
	const together = pixels.Together
	size, p, src := 3*r.width, r.passes(), r.lines()
	lines, need := func(y int) (int, int) { return y, y + 1 }, 1
	if r.down != nil {
		lines, need = r.down.lines, r.down.most
	}
	next, _ := lines(from) // the first row of the source that is not in the ring
	_, last := lines(to - 1)
	ring := newRing((need+2*together-2)/together*together, size)
	out := make([]byte, size)
	for y := from; y < to; y++ {
		_, b := lines(y)
		for ; next < b; next += together {
			p.rows(ring, next, src, next, last-1, r.src.Width, r.across)
		}
		if r.down == nil {
			r.emit(y, ring.Line(y, size))
			continue
		}
		p.mix(out, y, r.down, ring)
		r.emit(y, out)
	}
}

// columnsFirst emits rows from to to of the result, sixteen at a time: their columns are resampled
// from the rows of the source, then the rows, if they change.
func (r *resampler) columnsFirst(from, to int) {
	const together = pixels.Together
	size, p, src := 3*r.width, r.passes(), r.lines()
	mixed := newRing(together, 3*r.src.Width)
	done := mixed
	if r.across != nil {
		done = newRing(together, size)
	}
	for ; from < to; from += together {
		n := min(together, to-from)
		for i := range n {
			p.mix(mixed.Line(i, mixed.Stride), from+i, r.down, src)
		}
		if r.across != nil {
			p.rows(done, 0, mixed, 0, n-1, r.src.Width, r.across)
		}
		for i := range n {
			r.emit(from+i, done.Line(i, size))
		}
	}
}
