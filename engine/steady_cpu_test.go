//go:build cgo && linux && !race

package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
)

// TestSteadyHeap decodes 16 streams, greedy, drawn and with penalties: the loop, the
// scheduler, the books of pages, the step, its sampling and the streams allocate nothing
// on Go's heap, what is in use does not grow, and the arenas take no byte. Readers keep up:
// what nobody reads is kept, and that takes room.
func TestSteadyHeap(t *testing.T) {
	const streams, first, last = 16, 40, 240 // steps of 16 tokens that are looked at
	var before, after runtime.MemStats
	steps, seen := 0, make(chan struct{})
	var read atomic.Int64
	y := &toy{dir: "models/testdata/tiny-llama3-tied", on: cpu.Opener{}, slabs: 64, opts: engine.Options{
		MaxModelLen: 400, MaxNumSeqs: streams, MaxNumBatchedTokens: 512, BlockSize: 16, KVFormat: kernels.F32,
		ChunkedPrefill: true, PrefixCaching: true, Overlap: true, Backend: backend.Settings{Threads: 2},
	}}
	y.hooks.Step = func(st engine.StepStats) {
		if st.GenerationTokens != streams {
			return
		}
		for read.Load() < int64((steps-2)*streams) {
			runtime.Gosched()
		}
		switch steps++; steps {
		case first:
			runtime.GC()
			runtime.ReadMemStats(&before)
		case last:
			runtime.GC()
			runtime.ReadMemStats(&after)
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
	made := after.Mallocs - before.Mallocs
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d allocations, %d bytes made in %d steps, %d more in use", made, after.TotalAlloc-before.TotalAlloc, last-first, grown)
	// Looking at the heap and collecting it allocates now and then, which is not the steps'.
	if made > (last-first)/8 && !engine.Invariants { // verifying allocates too
		t.Errorf("%d allocations in %d steps of %d streams", made, last-first, streams)
	}
	if grown > 64<<10 && !engine.Invariants {
		t.Errorf("%d bytes more in use after %d steps", grown, last-first)
	}
	if held := e.Usage(); held != arenas {
		t.Errorf("arenas of %v bytes before, of %v now", arenas, held)
	}
}
