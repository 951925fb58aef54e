//go:build cgo && linux

package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/local"
)

// scenarios are what ranks do, by name.
var scenarios = map[string]func(w *World) error{
	"sums":           sums,
	"sums, bf16":     sums,
	"rows":           rows,
	"stages":         stages,
	"alone":          alone,
	"abort":          abortWaiting,
	"late broadcast": lateBroadcast,
	"time":           timeAllReduce,
	"other size": func(w *World) error {
		return twoRanks(w, 2, func(g backend.Group, r int) error { return g.AllReduce(make([]float32, 1+r)) })
	},
	"other size, parts": func(w *World) error {
		return twoRanks(w, 2, func(g backend.Group, r int) error {
			return cmp.Or(g.AllReduce(make([]float32, (1+r)*part)), g.AllReduce(make([]float32, 1)))
		})
	},
	"other op": func(w *World) error {
		return twoRanks(w, 2, func(g backend.Group, r int) error {
			if r == 0 {
				return g.AllReduce(make([]float32, 4))
			}
			return g.AllGather(make([]float32, 4), make([]float32, 8), 2)
		})
	},
	"other size, stage": func(w *World) error {
		return twoRanks(w, 1, func(g backend.Group, r int) error {
			if r == 0 {
				return g.Send(make([]float32, 3))
			}
			return g.Receive(make([]float32, 2))
		})
	},
	"bad calls": func(w *World) error {
		return twoRanks(w, 1, func(g backend.Group, r int) error {
			if r == 0 {
				return g.Receive(make([]float32, 3))
			}
			return g.Send(make([]float32, 3))
		})
	},
	"nil pointer": nilPointer,
}

// terms returns the terms of all ranks: numbers of very different sizes, so that another order gives other bits.
func terms(ranks, n int) [][]float32 {
	out := make([][]float32, ranks)
	for r := range out {
		g := rand.New(rand.NewPCG(uint64(r), uint64(n)))
		out[r] = make([]float32, n)
		for i := range out[r] {
			out[r][i] = float32(g.NormFloat64() * math.Exp2(float64(g.IntN(30))))
		}
	}
	return out
}

// sums compares sums of sizes around every limit with package local's, bit for bit.
func sums(w *World) error {
	g, err := w.Group(w.Size(), 1)
	if err != nil {
		return err
	}
	for _, n := range []int{1, 2, 3, 513, direct - 1, direct, direct + 1, part + 1, 2*part + 3} {
		x := terms(w.Size(), n)
		got := slices.Clone(x[w.Rank()])
		if err := g.AllReduce(got); err != nil {
			return err
		}
		if w.options.Wire == BF16 {
			for _, t := range x {
				for i := range t {
					t[i] = rounded(t[i])
				}
			}
		}
		want := reduceLocal(x)
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				return fmt.Errorf("%v, sum %d of %d is %v, want %v", w.options.Wire, i, n, got[i], want[i])
			}
		}
	}
	return nil
}

// rounded returns the bf16 number that is nearest to x, of two equally near ones the even.
func rounded(x float32) float32 {
	bits := math.Float32bits(x)
	low, high := math.Float32frombits(bits&^0xffff), math.Float32frombits(bits&^0xffff+0x10000)
	below, above := math.Abs(float64(x)-float64(low)), math.Abs(float64(high)-float64(x))
	if below < above || below == above && bits&0x10000 == 0 {
		return low
	}
	return high
}

// reduceLocal returns the sum of all ranks' terms by package local.
func reduceLocal(x [][]float32) []float32 {
	var wg sync.WaitGroup
	for r, g := range local.New(len(x), 1) {
		wg.Go(func() {
			if err := g.AllReduce(x[r]); err != nil {
				panic(err)
			}
		})
	}
	wg.Wait()
	return x[0]
}

// rows gathers rows of several widths: those that come in one message, in several, and one by one.
func rows(w *World) error {
	g, err := w.Group(w.Size(), 1)
	if err != nil {
		return err
	}
	for _, shape := range [][2]int{{1, 1}, {3, 2}, {1, 5000}, {700, 1000}, {3, part + 5}} {
		n, cols := shape[0], shape[1]
		value := func(rank, row, col int) float32 { return float32(rank*1000000 + row*1000 + col%997) }
		x, y := make([]float32, n*cols), make([]float32, n*cols*w.Size())
		for i := range x {
			x[i] = value(w.Rank(), i/cols, i%cols)
		}
		if err := g.AllGather(x, y, cols); err != nil {
			return err
		}
		for i, got := range y {
			row, at := i/(cols*w.Size()), i%(cols*w.Size())
			if want := value(at/cols, row, at%cols); got != want {
				return fmt.Errorf("rows of %v: number %d is %v, want %v", shape, i, got, want)
			}
		}
	}
	return nil
}

// stages runs all calls in turns on two ranks of two stages each.
func stages(w *World) error {
	address := make([]byte, 20)
	if w.Rank() == 0 {
		copy(address, "host:29500")
	}
	if err := w.Broadcast(address); err != nil || !strings.HasPrefix(string(address), "host:29500") {
		return fmt.Errorf("the address is %q, %v", address, err)
	}
	if _, err := w.Group(3, 1); err == nil || !strings.Contains(err.Error(), "tensor 3 × pipeline 1 is 3 ranks, and the launcher started 4") {
		return fmt.Errorf("a group of 3 ranks: %v", err)
	}
	g, err := w.Group(2, 2)
	if err != nil {
		return err
	}
	stage, me := w.Rank()/2, w.Rank()%2
	if want := (backend.Shard{Rank: me, World: 2}); g.Tensor() != want || g.Pipe() != (backend.Shard{Rank: stage, World: 2}) {
		return fmt.Errorf("rank %d is tensor rank %v of stage %v", w.Rank(), g.Tensor(), g.Pipe())
	}
	for turn := range 300 {
		n := 1 + turn*turn // below and above the sizes that MPI sends at once
		x := make([]float32, n)
		if stage == 0 {
			x[0], x[n-1] = float32(turn), float32(me+1)
			if n == 1 {
				x[0] = float32(me + 1)
			}
			if err := g.Send(x); err != nil {
				return err
			}
		} else if err := g.Receive(x); err != nil || x[n-1] != float32(me+1) || n > 1 && x[0] != float32(turn) {
			return fmt.Errorf("turn %d: received %v … %v, %v", turn, x[0], x[n-1], err)
		}
		if err := g.AllReduce(x); err != nil || x[n-1] != 3 {
			return fmt.Errorf("turn %d: the sum is %v, %v", turn, x[n-1], err)
		}
		y := make([]float32, 2)
		if err := g.AllGather([]float32{float32(w.Rank())}, y, 1); err != nil || y[0] != float32(2*stage) || y[1] != float32(2*stage+1) {
			return fmt.Errorf("turn %d: gathered %v, %v", turn, y, err)
		}
	}
	return nil
}

// alone is one rank, with or without a launcher.
func alone(w *World) error {
	if w.Size() != 1 || w.Rank() != 0 || !strings.HasPrefix(w.Library(), "Open MPI ") {
		return fmt.Errorf("rank %d of %d with %s", w.Rank(), w.Size(), w.Library())
	}
	g, err := w.Group(1, 1)
	if err != nil {
		return err
	}
	x, y := []float32{1, 2}, make([]float32, 2)
	if err := errors.Join(g.AllReduce(x), g.AllGather(x, y, 1), w.Broadcast([]byte("x"))); err != nil || !slices.Equal(y, x) {
		return fmt.Errorf("%v, %v", y, err)
	}
	if _, err := Open(Options{}); err == nil {
		return errors.New("the process opened MPI twice")
	}
	return nil
}

// nilPointer needs Go's handler of SIGSEGV after MPI has started.
func nilPointer(w *World) (err error) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "nil pointer") {
			err = fmt.Errorf("recovered %v", r)
		}
	}()
	var missing *World
	missing.size = w.size
	return errors.New("a nil pointer has a value")
}

// twoRanks makes a call on two ranks of tensor tensor parallel ones. Its error is that of all calls after it.
func twoRanks(w *World, tensor int, call func(g backend.Group, rank int) error) error {
	g, err := w.Group(tensor, 2/tensor)
	if err != nil {
		return err
	}
	err = call(g, w.Rank())
	if err == nil {
		return nil
	}
	if again := g.AllReduce(make([]float32, 1)); again != err {
		return fmt.Errorf("%v, and then %v", err, again)
	}
	return err
}

// abortWaiting: rank 0 waits for a call that rank 1 does not make, until another goroutine aborts it.
func abortWaiting(w *World) error {
	return twoRanks(w, 2, func(g backend.Group, r int) error {
		if r == 1 {
			return nil
		}
		broken := errors.New("the device is gone")
		go func() {
			for w.calls.TryLock() { // until the call has begun
				w.calls.Unlock()
				runtime.Gosched()
			}
			g.Abort(broken)
			g.Abort(errors.New("a second error"))
		}()
		return g.AllReduce(make([]float32, 4))
	})
}

// lateBroadcast: rank 1 waits for rank 0, which does not call.
func lateBroadcast(w *World) error {
	if w.Rank() == 0 {
		return nil
	}
	w.options.Wait = 10 * time.Millisecond
	return w.Broadcast(make([]byte, 8))
}
