//go:build cgo && linux

package cpu_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// keeper opens a device with a cache file and returns what became of the file.
func keeper(t *testing.T, c backend.Cache) (*device, backend.CacheUse) {
	t.Helper()
	n := tiny{heads: 2, kv: 2, dim: 64, vocab: 900, tokens: 16, seqs: 1, length: 32, format: kernels.F32}
	d := n.openUnpacked(t, backend.Settings{Threads: 2, Cache: c})
	return d, d.Device.(backend.CacheWriter).CacheUse()
}

// draws returns the token that a step samples.
func (d *device) draws(t *testing.T) int32 {
	t.Helper()
	d.run(t, d.fill(0, 1, 16, 0))
	return d.Step(0).Sampled[0]
}

func kept(t *testing.T, d *device) {
	t.Helper()
	must(t, d.Device.(backend.CacheWriter).WriteCache(context.Background()))
}

// TestCache writes a file, reads it and computes with it. A stale or damaged file is packed
// again and replaced.
func TestCache(t *testing.T) {
	c := backend.Cache{Dir: t.TempDir(), Stem: "tiny", Key: [32]byte{1}}
	d, use := keeper(t, c)
	if use.Loaded || !strings.Contains(use.Why, "no file yet") {
		t.Fatalf("without a file: %+v", use)
	}
	d.packAll(t)
	want := d.draws(t)
	kept(t, d)
	whole, err := os.ReadFile(use.Path)
	must(t, err)
	spoil := map[string]func(b []byte) []byte{
		"":                        func(b []byte) []byte { return b },
		"truncated":               func(b []byte) []byte { return b[:len(b)-4096] },
		"damaged: wrong checksum": func(b []byte) []byte { b[len(b)-4097] ^= 4; return b },
		"its header is damaged":   func(b []byte) []byte { b[75] ^= 1; return b },
		"no file of packed":       func([]byte) []byte { return []byte("hello") },
		"no file of packed ":      func([]byte) []byte { return nil },
	}
	for why, f := range spoil {
		must(t, os.WriteFile(use.Path, f(append([]byte(nil), whole...)), 0o644))
		d, use := keeper(t, c)
		if why = strings.TrimSpace(why); use.Loaded != (why == "") || !strings.Contains(use.Why, why) {
			t.Errorf("want %q: %+v", why, use)
		}
		if !use.Loaded {
			d.packAll(t)
		} else if d.Pack(0, d.src) == nil {
			t.Error("Pack wrote over weights of a file")
		}
		if got := d.draws(t); got != want {
			t.Errorf("%q: drew %d, not %d", why, got, want)
		}
		if why != "truncated" && !strings.HasPrefix(why, "damaged") {
			continue
		}
		kept(t, d)
		if d, use := keeper(t, c); !use.Loaded || d.draws(t) != want {
			t.Errorf("after %q: %+v", why, use)
		}
	}
	must(t, os.WriteFile(use.Path, whole, 0o644))
	c.Key[0]++
	if _, use := keeper(t, c); use.Loaded || !strings.Contains(use.Why, "stale") {
		t.Errorf("of another checkpoint: %+v", use)
	}
}

// TestCacheChanged: a file that is truncated or overwritten while a device runs, which was
// loaded from it, changes no weight. A device that opens the file then packs.
func TestCacheChanged(t *testing.T) {
	c := backend.Cache{Dir: t.TempDir(), Stem: "tiny"}
	d, use := keeper(t, c)
	d.packAll(t)
	kept(t, d)
	whole, err := os.ReadFile(use.Path)
	must(t, err)
	want := d.draws(t)
	overwrite := func() error {
		f, err := os.OpenFile(use.Path, os.O_WRONLY, 0)
		must(t, err)
		defer f.Close()
		_, err = f.Write(bytes.Repeat([]byte{0x3f}, len(whole)))
		return err
	}
	for how, change := range map[string]func() error{
		"cut":          func() error { return os.Truncate(use.Path, 0) },
		"written over": overwrite,
	} {
		must(t, os.WriteFile(use.Path, whole, 0o644))
		d, use := keeper(t, c)
		if !use.Loaded {
			t.Fatalf("%+v", use)
		}
		must(t, change())
		if got := d.draws(t); got != want {
			t.Errorf("%s while in use: drew %d, not %d", how, got, want)
		}
		if _, use := keeper(t, c); use.Loaded {
			t.Errorf("%s: %+v", how, use)
		}
	}
}

// TestCacheOfMany: several devices write the same file at once; at any time it is complete or
// missing.
func TestCacheOfMany(t *testing.T) {
	c := backend.Cache{Dir: t.TempDir(), Stem: "tiny"}
	var ds []*device
	for range 3 {
		d, _ := keeper(t, c)
		d.packAll(t)
		ds = append(ds, d)
	}
	var wg sync.WaitGroup
	for _, d := range ds {
		wg.Go(func() {
			for range 2 {
				var no *backend.CacheError
				if err := d.Device.(backend.CacheWriter).WriteCache(context.Background()); err != nil && !errors.As(err, &no) {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		if _, use := keeper(t, c); !use.Loaded && !strings.Contains(use.Why, "no file yet") {
			t.Errorf("%+v", use)
		}
	}
	wg.Wait()
	if _, use := keeper(t, c); !use.Loaded {
		t.Errorf("%+v", use)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "*.part")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestCacheTaken: two devices are opened before the file exists; the second does not replace
// the file that the first wrote.
func TestCacheTaken(t *testing.T) {
	c := backend.Cache{Dir: t.TempDir(), Stem: "tiny"}
	first, use := keeper(t, c)
	second, _ := keeper(t, c)
	first.packAll(t)
	second.packAll(t)
	kept(t, first)
	before, err := os.Stat(use.Path)
	must(t, err)
	if err := second.Device.(backend.CacheWriter).WriteCache(context.Background()); !errors.Is(err, backend.ErrCacheTaken) || !strings.Contains(err.Error(), "the next start reads that") {
		t.Errorf("%v, want that another process writes it", err)
	}
	if after, err := os.Stat(use.Path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was written again, %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "*.part")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestCacheRefused: a missing directory, or a path that is none, is an error if the cache is
// required and a reason in CacheUse if not. A cancelled write leaves no file.
func TestCacheRefused(t *testing.T) {
	dir := t.TempDir()
	n := tiny{heads: 2, kv: 2, dim: 64, vocab: 900, tokens: 16, seqs: 1, length: 32, format: kernels.F32}
	c := backend.Cache{Dir: filepath.Join(dir, "absent"), Stem: "tiny", Must: true}
	var no *backend.CacheError
	if _, _, err := n.opened(t, backend.Settings{Cache: c}); !errors.As(err, &no) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	c.Must = false
	d, _ := keeper(t, c)
	d.packAll(t)
	if err := d.Device.(backend.CacheWriter).WriteCache(context.Background()); !errors.As(err, &no) {
		t.Errorf("a missing directory: %v", err)
	}
	c.Dir = dir
	d, use := keeper(t, c)
	d.packAll(t)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := d.Device.(backend.CacheWriter).WriteCache(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cut short: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("cancelled, it leaves %v next to %s", left, use.Path)
	}
}

// TestCacheSweep: writing a file removes files that no start of this version can read; files
// of other profiles and models stay.
func TestCacheSweep(t *testing.T) {
	dir := t.TempDir()
	c := backend.Cache{Dir: dir, Stem: "tiny", Key: [32]byte{1}}
	first, use := keeper(t, c)
	first.packAll(t)
	kept(t, first)
	whole, err := os.ReadFile(use.Path)
	must(t, err)
	older := append([]byte(nil), whole...)
	older[20]++ // its version
	files := map[string][]byte{
		"tiny.avx2-00000001.packed": whole, // another profile's
		"tiny.avx2-00000002.packed": older, "tiny.avx2-00000003.packed": []byte("hello"), "tiny.amx-00000004.packed.part": nil,
		"tiny.Q4.avx2-00000002.packed": older, "tiny.packed": older, "tiny.avx2-2.packed": older, "other.avx2-00000002.packed": older, "config.json": nil,
	}
	names := func(list []backend.CacheFile) (out []string) {
		for _, f := range list {
			out = append(out, filepath.Base(f.Path))
			if want := int64(len(files[filepath.Base(f.Path)])); f.Bytes != want {
				t.Errorf("%s has %d bytes, not %d", f.Path, f.Bytes, want)
			}
		}
		return out
	}
	for _, shared := range []bool{true, false} {
		for name, b := range files {
			must(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
		}
		must(t, os.Remove(use.Path))
		c.Shared = shared
		d, _ := keeper(t, c)
		d.packAll(t)
		kept(t, d)
		got := d.Device.(backend.CacheWriter).CacheUse()
		wantGone, wantLeft := []string{"tiny.amx-00000004.packed.part", "tiny.avx2-00000002.packed", "tiny.avx2-00000003.packed"}, []string{"tiny.avx2-00000001.packed"}
		if shared {
			wantGone, wantLeft = nil, []string{"tiny.avx2-00000001.packed", "tiny.avx2-00000002.packed", "tiny.avx2-00000003.packed"}
		}
		if gone, left := names(got.Removed), names(got.Others); !slices.Equal(gone, wantGone) || !slices.Equal(left, wantLeft) {
			t.Errorf("shared %v: removed %v, left %v", shared, gone, left)
		}
		for name := range files {
			if _, err := os.Stat(filepath.Join(dir, name)); (err != nil) != slices.Contains(wantGone, name) {
				t.Errorf("shared %v: %s: %v", shared, name, err)
			}
		}
		if _, again := keeper(t, c); !again.Loaded {
			t.Errorf("shared %v: %+v", shared, again)
		}
	}
	// With another checkpoint, the first device's files are useless.
	c.Key[0]++
	d, _ := keeper(t, c)
	d.packAll(t)
	kept(t, d)
	if got := d.Device.(backend.CacheWriter).CacheUse(); !slices.Equal(names(got.Removed), []string{"tiny.avx2-00000001.packed"}) || len(got.Others) > 0 {
		t.Errorf("after another checkpoint: %+v", got)
	}
}

// TestCacheDraft: a temporary file that another process is writing stays.
func TestCacheDraft(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "tiny.amx-00000004.packed.part"))
	must(t, err)
	defer f.Close()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	d, _ := keeper(t, backend.Cache{Dir: dir, Stem: "tiny"})
	d.packAll(t)
	kept(t, d)
	if got := d.Device.(backend.CacheWriter).CacheUse(); len(got.Removed)+len(got.Others) > 0 {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(f.Name()); err != nil {
		t.Error(err)
	}
}
