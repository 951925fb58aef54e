//go:build cgo && linux

package engine_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
)

// TestRebuildCPU is TestRebuild with the C kernels.
func TestRebuildCPU(t *testing.T) {
	rebuild(t, cpu.Opener{}, backend.Settings{Threads: 2}, kernels.F32)
	t.Run("adapters", func(t *testing.T) { rebuildAdapters(t, cpu.Opener{}, backend.Settings{Threads: 2}) })
}

// TestRebuildCache: an engine with the weights of another one writes their file if the other one was closed before it
// had, and only then.
func TestRebuildCache(t *testing.T) {
	y := smallRun(newToy(t).dir)
	y.on, y.opts.KVFormat = cpu.Opener{}, kernels.F32
	y.opts.Backend = backend.Settings{Threads: 1, Cache: backend.Cache{Dir: t.TempDir(), Stem: "toy"}}
	events := make(chan engine.CacheEvent, 9)
	y.hooks.Cache = func(e engine.CacheEvent) { events <- e }
	file := func() []byte {
		t.Helper()
		paths, err := filepath.Glob(filepath.Join(y.opts.Backend.Cache.Dir, "*"))
		if err != nil || len(paths) != 1 {
			t.Fatal(paths, err)
		}
		b, err := os.ReadFile(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a := y.open(t)
	if e := <-events; e.Loaded || e.Written {
		t.Errorf("%+v", e)
	}
	if e := <-events; !e.Written || e.Err != nil {
		t.Errorf("%+v", e)
	}
	want, whole := answer(t, ask(t, a, "")), file()
	y.weights = weightsOf(t, a)
	b := y.open(t) // the file is there: no event
	ended(t, a)
	ended(t, b)
	select {
	case e := <-events:
		t.Errorf("%+v", e)
	default:
	}
	y.opts.Backend.Cache.Dir = t.TempDir() // no file yet
	c := y.open(t)
	if e := <-events; e.Loaded || e.Why != "the weights were in memory" {
		t.Errorf("%+v", e)
	}
	if e := <-events; !e.Written || e.Err != nil {
		t.Errorf("%+v", e)
	}
	if !bytes.Equal(file(), whole) {
		t.Error("the second file differs from the first")
	}
	ended(t, c)
	y.weights = nil
	d := y.open(t)
	if e := <-events; !e.Loaded {
		t.Errorf("the second file is not read: %+v", e)
	}
	if got := answer(t, ask(t, d, "")); !slices.Equal(got, want) {
		t.Errorf("%v, before %v", got, want)
	}
}
