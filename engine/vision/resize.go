package vision

import (
	"runtime"
	"sync"

	"vapp.dev/engine/vision/rgb"
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
}

func newResampler(src *rgb.Image, width, height int, by resampling, emit func(y int, row []byte)) *resampler {
	r := &resampler{src: src, width: width, work: width * height, columns: width == src.Width || by == pillow && downFirst(src, width, height), emit: emit}
	if width != src.Width {
		r.across = newFilter(src.Width, width, by)
		r.work += 3 * len(r.across.w) * src.Height
	}
	if height != src.Height {
		r.down = newFilter(src.Height, height, by)
		r.work += 3 * len(r.down.w) * width
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

// rowsFirst emits rows from to to of the result. Rows of the source pass through a ring: eight are
// resampled at a time, and each row of the result reads those that its weights need.
func (r *resampler) rowsFirst(from, to int) {
	size := 3 * r.width
	lines, need := func(y int) (int, int) { return y, y + 1 }, 1
	if r.down != nil {
		lines, need = r.down.lines, r.down.most
	}
	next, _ := lines(from) // the first row of the source that is not in the ring
	_, last := lines(to - 1)
	ring := newRows((need+2*lanes-2)/lanes*lanes, size)
	rows := newRowPass(r.across)
	out := make([]byte, size)
	var window [][]byte
	for y := from; y < to; y++ {
		a, b := lines(y)
		for ; next < b; next += lanes {
			var in, out [lanes][]byte
			for i := range lanes {
				s := min(next+i, last-1) // the last row stands for those behind it
				in[i], out[i] = r.src.Row(s), ring[s%len(ring)]
			}
			rows.run(&out, &in)
		}
		if r.down == nil {
			r.emit(y, ring[y%len(ring)])
			continue
		}
		window = window[:0]
		for i := a; i < b; i++ {
			window = append(window, ring[i%len(ring)])
		}
		r.down.mix(out, y, window)
		r.emit(y, out)
	}
}

// columnsFirst emits rows from to to of the result, eight at a time: their columns are resampled
// from the rows of the source, then the rows, if they change.
func (r *resampler) columnsFirst(from, to int) {
	mixed := newRows(lanes, 3*r.src.Width)
	done, rows := mixed, rowPass{}
	if r.across != nil {
		done, rows = newRows(lanes, 3*r.width), newRowPass(r.across)
	}
	var window [][]byte
	for ; from < to; from += lanes {
		n := min(lanes, to-from)
		for i := range n {
			a, b := r.down.lines(from + i)
			window = window[:0]
			for s := a; s < b; s++ {
				window = append(window, r.src.Row(s))
			}
			r.down.mix(mixed[i], from+i, window)
		}
		if r.across != nil {
			rows.run((*[lanes][]byte)(done), (*[lanes][]byte)(mixed))
		}
		for i := range n {
			r.emit(from+i, done[i])
		}
	}
}

// newRows returns n rows of size bytes.
func newRows(n, size int) [][]byte {
	all, out := make([]byte, n*size), make([][]byte, n)
	for i := range out {
		out[i] = all[i*size : (i+1)*size : (i+1)*size]
	}
	return out
}
