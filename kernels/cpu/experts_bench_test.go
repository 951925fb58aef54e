//go:build linux && cgo

package cpu

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/native"
)

// BenchmarkExpertRanks compares two ways to divide a layer of experts between two ranks of one thread, in turns: all selected
// experts at half of their width ("width"), and the experts of one half of the ids at full width ("ids"). Rows select experts at
// random. A step takes as long as its slower rank: with both ranks at the same time, as on one machine, and with one after the
// other ("apart"), each with all of the memory's bandwidth, as on two. Times are medians in ms of a thread's processor time, which
// other programs disturb least; %ids is the median of ids by width. %load is the mean of what the rank of ids that has more has by
// one half of all: experts to read, and picks.
func BenchmarkExpertRanks(b *testing.B) {
	for _, m := range []expertLayer{
		{"gpt-oss-20b", kernels.MXFP4, 2880, 2880, 32, 4, Activation{Kind: Clamped, Paired: 1, Limit: 7, Alpha: 1.702, Shift: 1}},
		{"gemma-4-26b", kernels.BF16, 2816, 704, 128, 8, Activation{Kind: GELUTanh}},
	} {
		for _, rows := range []int{1, 4, 16, 256} {
			b.Run(fmt.Sprintf("%s/%v/%d", m.name, m.format, rows), func(b *testing.B) { m.bench(b, rows) })
		}
	}
}

// expertLayer is the experts of a layer, as one rank without others has them.
type expertLayer struct {
	name                      string
	format                    kernels.Format
	cols, width, experts, top int
	activation                Activation
}

// expertRank is what one rank computes, and its ids.
type expertRank struct {
	args  *Experts
	ids   []int32 // [rows, top]; others than [0, experts) are other ranks'
	first []int32 // the first row of each expert, [experts + 1]
	rows  []int32
}

// open returns the part of a rank with some experts of a width. All that kernels see lies outside of Go's heap.
func (m expertLayer) open(b *testing.B, experts, width, rows int) expertRank {
	variant := Variants()[0]
	up, down := Matrix{Variant: variant, Format: m.format, Rows: 2 * width, Cols: m.cols}, Matrix{Variant: variant, Format: m.format, Rows: m.cols, Cols: width}
	glu, ok := Kernel(OpGLU, variant)
	if !ok {
		b.Fatal("no kernel of the activation")
	}
	at := func(n int64) uintptr { return address(huge(b, n+64)) }
	stack := func(w Matrix) Stack {
		packed, _, ok := w.Layout()
		k, has := w.Kernel()
		if !ok || !has {
			b.Fatalf("no kernel for %v", w)
		}
		weights := huge(b, packed*int64(experts))
		likely(w, weights)
		tile, bytes := w.Tile()
		return Stack{W: address(weights), Kernel: k.Address(), Bytes: packed, TileBytes: bytes,
			In: int32(w.Cols), Out: int32(w.Rows), Format: k.Code(), Tile: int32(tile)}
	}
	r := ExpertShape{GateUp: up, Down: down, Rows: rows, Top: m.top, Experts: experts}.Workspace()
	work := at(r.Bytes + r.Each)
	ids, shares := huge(b, int64(4*rows*m.top)), huge(b, int64(4*rows*m.top))
	x, first := huge(b, int64(4*rows*m.cols)), huge(b, int64(4*(experts+1)))
	for i := range rows * m.cols {
		*(*float32)(unsafe.Pointer(&x[4*i])) = float32(i%7-3) * 0.25
	}
	for i := range rows * m.top {
		*(*float32)(unsafe.Pointer(&shares[4*i])) = 1 / float32(m.top)
	}
	args := (*Experts)(unsafe.Pointer(&huge(b, int64(unsafe.Sizeof(Experts{})))[0]))
	*args = Experts{
		X: address(x), IDs: address(ids), Weights: address(shares), Y: at(int64(4 * rows * m.cols)), GateUp: stack(up), Down: stack(down), GLU: glu,
		First: address(first), Before: work + uintptr(r.Before), Place: work + uintptr(r.Place), Picked: work + uintptr(r.Picked),
		Up: work + uintptr(r.Up), Act: work + uintptr(r.Act), Shared: work + uintptr(r.Shared), Work: work + uintptr(r.Bytes), WorkBytes: r.Each,
		Experts: int32(experts), Top: int32(m.top), Cols: int32(m.cols), Width: int32(width), Most: ExpertRows, Activation: m.activation,
	}
	args.GateUp.X, args.GateUp.Y, args.Down.X, args.Down.Y = args.Picked, args.Up, args.Act, args.Picked
	ints := func(b []byte, n int) []int32 { return unsafe.Slice((*int32)(unsafe.Pointer(&b[0])), n) }
	return expertRank{args, ints(ids, rows*m.top), ints(first, experts+1), []int32{int32(rows)}}
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// run computes all phases on one thread and returns its processor time.
func (r expertRank) run() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadTime()
	for p := range numExpertPhases {
		native.Call(p.Address(), uintptr(unsafe.Pointer(r.args)), r.rows)
	}
	return threadTime() - start
}

// threadTime returns the processor time of this thread.
func threadTime() time.Duration {
	const clock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0); err != 0 {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// choose writes the ids, less first.
func (r expertRank) choose(ids []int32, first int) {
	for i, id := range ids {
		r.ids[i] = id - int32(first)
	}
}

// steps returns the times of a step on two ranks at the same time, and apart.
func steps(ranks [2]expertRank) (together, apart time.Duration) {
	var took [2]time.Duration
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() { took[i] = r.run() })
	}
	wg.Wait()
	return max(took[0], took[1]), max(ranks[0].run(), ranks[1].run())
}

func (m expertLayer) bench(b *testing.B, rows int) {
	var width, ids [2]expertRank
	for i := range width {
		width[i], ids[i] = m.open(b, m.experts, m.width/2, rows), m.open(b, m.experts/2, m.width, rows)
	}
	rng, picks := rand.New(rand.NewPCG(1, 2)), make([]int32, rows*m.top)
	times, load := map[string][]float64{}, [2]float64{}
	turns := b.N * max(1, 64/rows)
	b.ResetTimer()
	for turn := range turns {
		var picked, read [2]int
		seen := map[int32]bool{}
		for row := range rows {
			for i, e := range rng.Perm(m.experts)[:m.top] {
				half := e * 2 / m.experts
				picks[row*m.top+i] = int32(e)
				if picked[half]++; !seen[int32(e)] {
					seen[int32(e)] = true
					read[half]++
				}
			}
		}
		load[0] += float64(max(read[0], read[1])) * 2 / float64(len(seen))
		load[1] += float64(max(picked[0], picked[1])) * 2 / float64(len(picks))
		for i := range width {
			width[i].choose(picks, 0)
			ids[i].choose(picks, i*m.experts/2)
		}
		var took [2][2]time.Duration
		for i := range took { // the other one first in the next turn
			way := (turn + i) % 2
			took[way][0], took[way][1] = steps([2][2]expertRank{width, ids}[way])
		}
		for i, name := range []string{"", "-apart"} {
			w, e := took[0][i].Seconds(), took[1][i].Seconds()
			times["width"+name+"-ms"] = append(times["width"+name+"-ms"], 1e3*w)
			times["ids"+name+"-ms"] = append(times["ids"+name+"-ms"], 1e3*e)
			times["%ids"+name] = append(times["%ids"+name], 100*e/w)
		}
		for i := range ids {
			if n := int(ids[i].first[m.experts/2]); n != picked[i] {
				b.Fatalf("rank %d computed %d rows of %d", i, n, picked[i])
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, t := range times {
		slices.Sort(t)
		b.ReportMetric(t[len(t)/2], name)
	}
	b.ReportMetric(100*load[0]/float64(turns), "%load-experts")
	b.ReportMetric(100*load[1]/float64(turns), "%load-picks")
}
