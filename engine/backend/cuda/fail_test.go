//go:build linux && cgo && cuda

package cuda_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/sample"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda/cudatest"
)

// starting returns a function that opens a tiny model with graphs on the emulated driver.
func starting(t *testing.T) func() (*engine.Engine, error) {
	t.Helper()
	open := startingUntil(t)
	return func() (*engine.Engine, error) { return open(context.Background(), nil) }
}

// startingUntil is like starting, with a context and a progress callback.
func startingUntil(t *testing.T) func(context.Context, func(engine.Progress)) (*engine.Engine, error) {
	t.Helper()
	return startingWith(t, nil)
}

// startingWith is startingUntil with other options.
func startingWith(t *testing.T, change func(*engine.Options)) func(context.Context, func(engine.Progress)) (*engine.Engine, error) {
	t.Helper()
	config := configured(t, change)
	return func(ctx context.Context, onProgress func(engine.Progress)) (*engine.Engine, error) {
		c, err := config()
		if err != nil {
			return nil, err
		}
		c.Progress = onProgress
		return engine.Open(ctx, c)
	}
}

// configured returns a function that plans for a tiny model with graphs on the emulated driver.
func configured(t *testing.T, change func(*engine.Options)) func() (engine.Config, error) {
	t.Helper()
	t.Setenv("VAPP_LIBCUDA", cudatest.Driver(t))
	dir := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(dir, enginetest.Llama{Layers: 1, KVHeads: 2, HeadDim: 64, DType: kernels.BF16, Seed: 7}); err != nil {
		t.Fatal(err)
	}
	m, err := engine.Inspect(engine.Source{Path: dir, Name: "toy", Format: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return func() (engine.Config, error) {
		f, err := cuda.Opener{}.Probe()
		if err != nil {
			return engine.Config{}, err
		}
		o := engine.Options{
			MaxModelLen: 128, MaxNumSeqs: 2, MaxNumBatchedTokens: 16, BlockSize: 16, KVFormat: kernels.BF16, ChunkedPrefill: true, Overlap: true,
			Backend: backend.Settings{Graphs: backend.Graphs{Mode: "full_decode_only", Sizes: []int{1, 2}}},
		}
		if change != nil {
			change(&o)
		}
		a, err := engine.NewAccount(o, m, cuda.Opener{}, f)
		if err != nil {
			return engine.Config{}, err
		}
		o.KVBytes = 16 * a.KV.SlabBytes
		a, err = engine.NewAccount(o, m, cuda.Opener{}, f)
		return engine.Config{Options: o, Model: m, Opener: cuda.Opener{}, Facts: f, Account: a}, err
	}
}

// emulate sets the emulated driver's settings for a test.
func emulate(t *testing.T, settings string) {
	t.Helper()
	if err := driver.Emulate(settings); err != nil {
		t.Fatal(err)
	}
}

// shortHangTimeout shortens the time limit if the fault is a hanging device. Other faults keep the
// long limit, because a slow test machine would look like a hang.
func shortHangTimeout(t *testing.T, fault string) {
	d := time.Minute
	if strings.HasSuffix(fault, ":600") {
		d = 100 * time.Millisecond
	}
	cuda.SetHangTimeout(t, d)
}

// TestFailingStart: any failure while an engine starts returns an error with the device and
// the call, and all device memory is freed.
func TestFailingStart(t *testing.T) {
	open := starting(t)
	for _, c := range []struct{ fault, want string }{
		{"cuMemAlloc:1:2", "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: the device has no memory left"},
		{"cuMemHostAlloc:1:2", "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY: the host has no memory left that can be pinned"},
		{"cuMemHostAlloc:2:2", "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY"}, // the staging memory of weights
		{"cuStreamCreate:2:2", "cuStreamCreate: CUDA_ERROR_OUT_OF_MEMORY"},
		{"cuModuleGetFunction:1:500", "cuModuleGetFunction of vapp_"},
		{"cuMemcpyHtoDAsync:3:700", "cuMemcpyHtoDAsync: CUDA_ERROR_ILLEGAL_ADDRESS"},
		{"kernel:1:719", "CUDA_ERROR_LAUNCH_FAILED"},
		{"kernel:2:214", "CUDA_ERROR_ECC_UNCORRECTABLE"},
		{"kernel:2:600", "no answer for 100ms"},
		{"cuStreamBeginCapture:2:900", "cuStreamBeginCapture: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
		{"cuStreamEndCapture:1:901", "cuStreamEndCapture: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
		{"cuStreamEndCapture:2:719", "cuStreamEndCapture: CUDA_ERROR_LAUNCH_FAILED"}, // makes the context unusable
		{"cuGraphInstantiate:3:2", "cuGraphInstantiateWithFlags: CUDA_ERROR_OUT_OF_MEMORY"},
		{"cuGraphInstantiate:3:719", "CUDA_ERROR_LAUNCH_FAILED"},
	} {
		emulate(t, "reset,fault="+c.fault)
		shortHangTimeout(t, c.fault)
		e, err := open()
		if err == nil {
			t.Errorf("%s: it started", c.fault)
			e.Close()
			continue
		}
		if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "device 0, emulated GPU: ") {
			t.Errorf("%s: %v, want %q of device 0", c.fault, err, c.want)
		}
		if n := strings.Count(err.Error(), "backend cuda: "); n != 1 {
			t.Errorf("%s: %v: it names the backend %d times, want once", c.fault, err, n)
		}
		if n := strings.Count(err.Error(), "weight "); n > 1 {
			t.Errorf("%s: %v: it names the weight %d times, want once", c.fault, err, n)
		}
		if hung := (*driver.HungError)(nil); errors.As(err, &hung) {
			emulate(t, "reset")
		}
		if n := driver.Counted("taken"); n != 0 {
			t.Errorf("%s: %d bytes of the device are still taken", c.fault, n)
		}
	}
	emulate(t, "reset")
	shortHangTimeout(t, "")
	e, err := open()
	if err != nil {
		t.Fatalf("after all of them: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestEndedStart: a start that is cancelled while it loads weights or captures graphs stops
// before the next weight or graph, and all device memory is freed.
func TestEndedStart(t *testing.T) {
	open := startingUntil(t)
	emulate(t, "reset")
	for _, capturing := range []bool{false, true} {
		ctx, stop := context.WithCancelCause(context.Background())
		enough := errors.New("enough")
		var last engine.Progress
		e, err := open(ctx, func(p engine.Progress) {
			if last = p; p.Capturing == capturing {
				stop(enough) // at the first one
			}
		})
		stop(nil)
		if err == nil {
			e.Close()
		}
		if !errors.Is(err, enough) || last.Capturing != capturing || last.Done == last.Total {
			t.Errorf("capturing %v: it ended with %v at %+v", capturing, err, last)
		}
		if n := driver.Counted("taken"); n != 0 {
			t.Errorf("capturing %v: %d bytes of the device are still taken", capturing, n)
		}
	}
}

// TestFailingStep: an error of a step, or a kernel that never ends, ends every request and
// the engine with an error that names the device. The device is closed at once.
func TestFailingStep(t *testing.T) {
	open := starting(t)
	for fault, want := range map[string]string{
		"kernel:3:700":         "CUDA_ERROR_ILLEGAL_ADDRESS",
		"kernel:30:600":        "no answer for ",
		"cuLaunchKernel:3:719": "cuLaunchKernel of vapp_",
		"cuGraphLaunch:2:719":  "cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED",
		"cuEventRecord:5:999":  "cuEventRecord: CUDA_ERROR_UNKNOWN",
	} {
		emulate(t, "reset")
		shortHangTimeout(t, "")
		e, err := open()
		if err != nil {
			t.Fatal(err)
		}
		emulate(t, "fault="+fault)
		shortHangTimeout(t, fault)
		var streams []*engine.Stream
		for range 3 { // one of them is queued
			p := sample.Default()
			p.MaxTokens, p.IgnoreEOS = 50, true
			s, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1, 2, 3}, Params: p})
			if err != nil && !errors.Is(err, engine.ErrDead) { // the first request may have ended the engine
				t.Error(err)
			}
			streams = append(streams, s...)
		}
		for i, s := range streams {
			if err := endOf(t, s); !errors.Is(err, engine.ErrDead) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "device 0, emulated GPU: ") {
				t.Errorf("%s: request %d ended with %v, want %q of device 0", fault, i, err, want)
			}
		}
		<-e.Done()
		if _, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1}, Params: sample.Default()}); !errors.Is(err, engine.ErrDead) {
			t.Errorf("%s: a request afterwards: %v", fault, err)
		}
		if err := e.Close(); err != nil {
			t.Errorf("%s: closed: %v", fault, err)
		}
	}
	emulate(t, "reset")
}

// endOf returns the error that a stream ends with.
func endOf(t *testing.T, s *engine.Stream) error {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	for {
		events, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			return nil
		}
		for _, e := range events {
			if e.Err != nil {
				return e.Err
			}
		}
	}
}

// TestFailingClose: closing a device that hangs returns an error after the limit.
func TestFailingClose(t *testing.T) {
	open := starting(t)
	emulate(t, "reset,order=lazy")
	e, err := open()
	if err != nil {
		t.Fatal(err)
	}
	cuda.SetHangTimeout(t, 100*time.Millisecond)
	p := sample.Default()
	p.MaxTokens, p.IgnoreEOS = 100, true
	s, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1, 2, 3}, Params: p})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s[0].Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	emulate(t, "fault=kernel:1:600")
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
	}
	emulate(t, "reset")
}
