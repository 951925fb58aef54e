//go:build linux && cgo && cuda

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/sample"
)

// asleep opens an engine, and returns its weights in host memory, their bytes, and how to open the next engine with them.
func asleep(t *testing.T) (w backend.PackedWeights, bytes []byte, next func() (*engine.Engine, error)) {
	t.Helper()
	config := configured(t, nil)
	emulate(t, "reset")
	c, err := config()
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if w, err = e.Weights(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		emulate(t, "reset")
		w.Close()
	})
	bytes = cuda.WeightBytes(w)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return w, bytes, func() (*engine.Engine, error) {
		c, err := config()
		if err != nil {
			return nil, err
		}
		c.Weights = w
		return engine.Open(context.Background(), c)
	}
}

// counted fails the test unless the emulated driver has these bytes of device memory and pinned memory. Unless n is 0,
// the device has a context too.
func counted(t *testing.T, when string, n, pinned int64) {
	t.Helper()
	if got := driver.Counted("taken"); (n == 0) != (got == 0) {
		t.Errorf("%s: %d bytes of the device are taken", when, got)
	}
	if got := driver.Counted("pinned"); got != pinned {
		t.Errorf("%s: %d bytes are pinned, want %d", when, got, pinned)
	}
}

// TestOffload: weights go to pinned memory, or to plain memory where none can be pinned, and come back bit for bit.
// The device has the memory back meanwhile; the last Close leaves nothing.
func TestOffload(t *testing.T) {
	cuda.SetCopyBytes(t, 10_000)
	for _, pinned := range []bool{true, false} {
		w, want, next := asleep(t)
		awake := driver.Counted("taken")
		if !pinned {
			emulate(t, "fault=cuMemHostAlloc:1:2")
		}
		use, err := w.(backend.Offloader).Offload()
		if err != nil || use.Pinned != pinned || use.Bytes != int64(len(want)) {
			t.Fatalf("%+v, %v", use, err)
		}
		emulate(t, "reset")
		if got := awake - driver.Counted("taken"); got != use.Bytes {
			t.Errorf("the device has %d bytes back, of %d", got, use.Bytes)
		}
		host := int64(0)
		if pinned {
			host = use.Bytes
		}
		counted(t, "asleep", awake, host)
		e, err := next()
		if err != nil {
			t.Fatal(err)
		}
		if got := cuda.WeightBytes(w); !slices.Equal(got, want) {
			t.Error("other bits came back")
		}
		if err := errors.Join(e.Close(), w.Close()); err != nil {
			t.Error(err)
		}
		counted(t, "at the end", 0, 0)
	}
}

// TestBesideMemory: beside the first engine, the second one needs memory for all but the weights. What each says it
// took is its plan.
func TestBesideMemory(t *testing.T) {
	c, err := configured(t, func(o *engine.Options) { o.Backend.Graphs = backend.Graphs{} })()
	if err != nil {
		t.Fatal(err)
	}
	emulate(t, "reset")
	defer emulate(t, "reset")
	took := func(e *engine.Engine) int64 {
		total, before, now, ok := e.Memory()
		if !ok || total == 0 {
			t.Error("the device does not say how much memory is free")
		}
		return before - now
	}
	a, err := engine.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	w, err := a.Weights()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var plan int64
	for arena, n := range c.Account.Reservation.Arenas {
		if backend.Arena(arena) != backend.Swap {
			plan += n
		}
	}
	if n := took(a); n != plan {
		t.Errorf("the first engine took %d bytes, of %d", n, plan)
	}
	_, _, free, _ := a.Memory()
	emulate(t, fmt.Sprint("held=", free-(plan-w.Bytes()))) // by another process
	c.Weights = w
	b, err := engine.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if n := took(b); n != plan {
		t.Errorf("the second engine took %d bytes, of %d", n, plan)
	}
	c.Weights = nil
	var short *driver.MemoryError
	if e, err := engine.Open(context.Background(), c); !errors.As(err, &short) {
		if err == nil {
			e.Close()
		}
		t.Errorf("with weights of its own: %v", err)
	}
}

// TestFailingMove: where weights cannot be moved, they stay where they were, for the next engine, unless the device has
// failed.
func TestFailingMove(t *testing.T) {
	for _, c := range []struct {
		fault      string
		back, lost bool
	}{
		{"cuMemcpyDtoHAsync:1:1", false, false}, {"cuMemFree:1:1", false, false}, {"cuMemcpyDtoHAsync:1:700", false, true},
		{"cuMemAlloc:5:2", true, false}, {"cuMemcpyHtoDAsync:1:1", true, false},
	} {
		w, want, next := asleep(t)
		move := func() error {
			_, err := w.(backend.Offloader).Offload()
			return err
		}
		host := int64(0)
		if c.back {
			if err := move(); err != nil {
				t.Fatal(err)
			}
			host = int64(len(want))
			move = func() error {
				e, err := next()
				if err == nil {
					e.Close()
				}
				return err
			}
		}
		emulate(t, "fault="+c.fault)
		if err := move(); err == nil || !strings.Contains(err.Error(), "weights") || !strings.Contains(err.Error(), "device 0, emulated GPU: ") {
			t.Errorf("%s: %v", c.fault, err)
		}
		emulate(t, "reset")
		if i := w.Info(); i.Host != host || i.Devices != 0 || (i.Bytes == 0) != c.lost {
			t.Errorf("%s: %+v", c.fault, i)
		}
		e, err := next()
		var refused *backend.WeightsError
		switch {
		case c.lost:
			if !errors.As(err, &refused) || refused.Kind != backend.WeightsLost {
				t.Errorf("%s: %v", c.fault, err)
			}
		case err != nil:
			t.Errorf("%s, then: %v", c.fault, err)
		default:
			if got := cuda.WeightBytes(w); !slices.Equal(got, want) {
				t.Errorf("%s: other bits", c.fault)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		counted(t, c.fault, 0, 0)
	}
}

// TestFailingBeside: when the device fails, the engines that share weights on it fail too, the weights are lost, and
// all memory is given back when they are closed.
func TestFailingBeside(t *testing.T) {
	for _, fault := range []string{"kernel:3:700", "cuLaunchKernel:3:719"} {
		w, _, next := asleep(t)
		var engines []*engine.Engine
		for range 2 {
			e, err := next()
			if err != nil {
				t.Fatal(err)
			}
			engines = append(engines, e)
		}
		emulate(t, "fault="+fault)
		p := sample.Default()
		p.MaxTokens, p.IgnoreEOS = 50, true
		s, err := engines[0].Submit(context.Background(), engine.Request{Prompt: []int32{1, 2, 3}, Params: p})
		if err != nil {
			t.Fatal(err)
		}
		if err := endOf(t, s[0]); !errors.Is(err, engine.ErrDead) {
			t.Errorf("%s: %v", fault, err)
		}
		if err := engines[0].Close(); err != nil {
			t.Errorf("%s: closed: %v", fault, err)
		}
		if _, err := engines[1].Weights(); err == nil || !strings.Contains(err.Error(), "lost") {
			t.Errorf("%s: weights of a failed device: %v", fault, err)
		}
		_ = engines[1].Close() // its calls may fail
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		counted(t, fault, 0, 0)
	}
}
