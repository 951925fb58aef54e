//go:build cgo && linux

package engine_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

// TestPackedCache starts an engine twice. The second start reads the file that the first has
// written, takes as many bytes and gives the same tokens. A changed weight is detected even in a
// file with its old size and time.
func TestPackedCache(t *testing.T) {
	y := newToy(t)
	y.on, y.opts.Backend.Cache = cpu.Opener{}, backend.Cache{Dir: t.TempDir(), Stem: "toy", Must: true}
	events := make(chan engine.CacheEvent, 2)
	y.hooks.Cache = func(e engine.CacheEvent) { events <- e }
	first := y.open(t)
	if e := <-events; e.Loaded || !strings.Contains(e.Why, "no file yet") {
		t.Fatalf("%+v", e)
	}
	want, usage := runAll(t, first, 4, true), first.Usage()
	if e := <-events; !e.Written || e.Err != nil {
		t.Fatalf("%+v", e)
	}
	second := y.open(t)
	if e := <-events; !e.Loaded {
		t.Fatalf("%+v", e)
	}
	if got := runAll(t, second, 4, true); !reflect.DeepEqual(got, want) || second.Usage() != usage {
		t.Errorf("loaded it says %v and holds %v, packed %v and %v", got, second.Usage(), want, usage)
	}
	touch(t, filepath.Join(y.dir, "model.safetensors"))
	y.open(t)
	if e := <-events; e.Loaded || !strings.Contains(e.Why, "stale") {
		t.Errorf("of another checkpoint: %+v", e)
	}
	<-events
}

// touch changes the last byte of a file but not its size or time.
func touch(t *testing.T, path string) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, st.ModTime()); err != nil {
		t.Fatal(err)
	}
}
