//go:build cgo && linux && !race

package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// TestSteadyHeap decodes 16 streams, greedy, sampled and with penalties. The loop, the scheduler,
// the page pool, the step, its sampling and the streams allocate nothing on the Go heap, the heap
// in use does not grow, and the arenas take no byte of it. Readers keep up, since unread events
// are buffered.
func TestSteadyHeap(t *testing.T) {
	const streams, first, last = 16, 40, 240 // the measured steps
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	var before, after heap
	steps, given, seen := 0, int64(0), make(chan struct{})
	var read atomic.Int64
	y := &toy{dir: "models/testdata/tiny-llama3-tied", on: cpu.Opener{}, slabs: 64, opts: engine.Options{
		MaxModelLen: 400, MaxNumSeqs: streams, MaxNumBatchedTokens: 512, BlockSize: 16, KVFormat: kernels.F32,
		ChunkedPrefill: true, PrefixCaching: true, Overlap: true, Backend: backend.Settings{Threads: 2},
	}}
	y.hooks.Step = func(st engine.StepStats) {
		given += int64(st.GenerationTokens)
		for read.Load() < given {
			runtime.Gosched()
		}
		if st.GenerationTokens != streams {
			return
		}
		switch steps++; steps {
		case first:
			before = look()
		case last:
			after = look()
			close(seen)
		}
	}
	e := y.open(t)
	arenas := e.Usage()
	for i := range streams {
		p := sample.Default()
		p.Temperature, p.MaxTokens, p.IgnoreEOS = float64(i%2), 350, true
		switch i % 4 {
		case 1:
			p.TopP, p.TopK = 0.9, 20
		case 2:
			p.Repetition, p.Frequency = 1.1, 0.2
		}
		prompt := make([]int32, 20)
		for k := range prompt {
			prompt[k] = int32((i*31 + k) % 250)
		}
		s, err := e.Submit(context.Background(), engine.Request{ID: fmt.Sprint(i), Prompt: prompt, Params: p, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for evs, err := s[0].Next(context.Background()); len(evs) > 0 && err == nil; {
				read.Add(int64(len(evs)))
				evs, err = s[0].Next(context.Background())
			}
		}()
	}
	<-seen
	grown := after.inUse - before.inUse
	t.Logf("%d bytes more in use after %d steps", grown, last-first)
	for where, n := range after.made {
		if n -= before.made[where]; n > 0 && !engine.Invariants { // verifying allocates too
			t.Errorf("%d allocations in %d steps of %d streams:\n%s", n, last-first, streams, where)
		}
	}
	if grown > 0 && !engine.Invariants {
		t.Errorf("%d bytes more in use after %d steps", grown, last-first)
	}
	if held := e.Usage(); held != arenas {
		t.Errorf("arenas of %v bytes before, of %v now", arenas, held)
	}
}

// heap is a profile of the heap use of vapp's own code.
type heap struct {
	inUse int64            // bytes
	made  map[string]int64 // allocations, by stack
}

// look runs the garbage collector and reads the profile, which records every allocation. It leaves
// out allocations of the Go runtime for itself (threads, GC workers) and of tests.
func look() heap {
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 1<<16)
	n, ok := runtime.MemProfile(records, true)
	if !ok {
		panic(fmt.Sprint(n, " places that allocate"))
	}
	h := heap{made: map[string]int64{}}
	for _, r := range records[:n] {
		if where, ours := ownStack(r.Stack()); ours {
			h.made[where] += r.AllocObjects
			h.inUse += r.InUseBytes()
		}
	}
	return h
}

// ownStack returns a stack as text, and whether its innermost function of vapp is not one of a test.
func ownStack(pcs []uintptr) (text string, ours bool) {
	known := false
	var b strings.Builder
	for frames := runtime.CallersFrames(pcs); ; {
		f, more := frames.Next()
		fmt.Fprintf(&b, "%s:%d\n", f.Function, f.Line)
		if !known && strings.HasPrefix(f.Function, "vapp.dev/") {
			known, ours = true, !strings.HasPrefix(f.Function, "vapp.dev/engine_test.")
		}
		if !more {
			return b.String(), ours
		}
	}
}
