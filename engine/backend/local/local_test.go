package local_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/local"
)

// all runs a function on every rank at once and returns the errors.
func all(groups []backend.Group, run func(g backend.Group) error) []error {
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() { errs[i] = run(g) })
	}
	wg.Wait()
	return errs
}

// TestCalls: sums are in the order of ranks, rows of all ranks are side by side, values go from stage to stage, and
// many calls follow each other.
func TestCalls(t *testing.T) {
	const tensor, pipe = 3, 2
	groups := local.New(tensor, pipe)
	terms := []float32{1e8, 1, -1e8} // 1e8 + 1 − 1e8 is 0, in another order it is 1
	for rank, err := range all(groups, func(g backend.Group) error {
		for i := range 200 {
			turn := float32(i)
			x := []float32{terms[g.Tensor().Rank], turn}
			if err := g.AllReduce(x); err != nil {
				return err
			}
			if !slices.Equal(x, []float32{0, tensor * turn}) {
				return errors.New("wrong sum")
			}
			me := float32(g.Tensor().Rank)
			y := make([]float32, 4*tensor)
			if err := g.AllGather([]float32{me, 10 + me, 20 + me, 30 + me}, y, 2); err != nil {
				return err
			}
			if !slices.Equal(y, []float32{0, 10, 1, 11, 2, 12, 20, 30, 21, 31, 22, 32}) {
				return errors.New("wrong rows")
			}
			v := []float32{100*turn + me}
			if g.Pipe().Rank == 0 {
				if err := g.Send(v); err != nil {
					return err
				}
				continue
			}
			got := []float32{0}
			if err := g.Receive(got); err != nil || got[0] != v[0] {
				return errors.Join(err, errors.New("wrong value"))
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestFailures: ranks that do not make the same call, and a rank that fails, end the calls of all.
func TestFailures(t *testing.T) {
	broken := errors.New("the device is gone")
	for why, run := range map[string]func(g backend.Group, first bool) error{
		"rank 0 calls all_reduce of 1 numbers, rank 1 all_reduce of 2": func(g backend.Group, first bool) error {
			if first {
				return g.AllReduce(make([]float32, 1))
			}
			return g.AllReduce(make([]float32, 2))
		},
		"rank 0 calls all_reduce of 4 numbers, rank 1 all_gather of 4": func(g backend.Group, first bool) error {
			if first {
				return g.AllReduce(make([]float32, 4))
			}
			return g.AllGather(make([]float32, 4), make([]float32, 8), 2)
		},
		"all_gather of 4 numbers in rows of 3": func(g backend.Group, first bool) error {
			if first {
				return g.AllReduce(make([]float32, 4))
			}
			return g.AllGather(make([]float32, 4), make([]float32, 8), 3)
		},
		"the last of 1 stages sends":     func(g backend.Group, _ bool) error { return g.Send(nil) },
		"the first of 1 stages receives": func(g backend.Group, _ bool) error { return g.Receive(nil) },
		"the device is gone": func(g backend.Group, first bool) error {
			if first {
				return g.AllReduce(make([]float32, 4))
			}
			g.Abort(broken)
			return g.AllReduce(make([]float32, 4))
		},
	} {
		for rank, err := range all(local.New(2, 1), func(g backend.Group) error { return run(g, g.Tensor().Rank == 0) }) {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("rank %d: %v, want %q", rank, err, why)
			}
		}
	}
	for rank, err := range all(local.New(1, 2), func(g backend.Group) error {
		if g.Pipe().Rank == 0 {
			return g.Send(make([]float32, 3))
		}
		return g.Receive(make([]float32, 2))
	}) {
		if rank == 1 && (err == nil || !strings.Contains(err.Error(), "stage 0 sent 3 numbers, stage 1 receives 2")) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
