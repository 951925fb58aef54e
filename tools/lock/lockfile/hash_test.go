package lockfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/tools/lock"
)

// TestHasher checks hashes, and that the hash of a lock is used while size and time are equal.
func TestHasher(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for name, text := range map[string]string{"b": strings.Repeat("b", 3<<20), "a": "a", "c": ""} {
		files[name] = filepath.Join(dir, name)
		if err := os.WriteFile(files[name], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	d := &Hasher{}
	got, err := d.files(ctx, files, nil)
	if err != nil || len(got) != 3 || got[0].Name != "a" || got[2].Name != "c" {
		t.Fatalf("%v, %v", got, err)
	}
	for _, f := range got {
		data, _ := os.ReadFile(files[f.Name])
		sum := sha256.Sum256(data)
		if f.SHA256 != hex.EncodeToString(sum[:]) || f.Size != int64(len(data)) {
			t.Errorf("%+v", f)
		}
	}
	// The same size at the same time: not read.
	locked := &lock.Lock{Checkpoint: lock.Checkpoint{Files: got}}
	old := got[0].ModTime
	if err := os.WriteFile(files["a"], []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(files["a"], old, old); err != nil {
		t.Fatal(err)
	}
	if again, err := (&Hasher{}).files(ctx, files, locked); err != nil || again[0].SHA256 != got[0].SHA256 {
		t.Errorf("%v, %v: read again", again, err)
	}
	later := old.Add(time.Second)
	if err := os.Chtimes(files["a"], later, later); err != nil {
		t.Fatal(err)
	}
	if again, err := (&Hasher{}).files(ctx, files, locked); err != nil || again[0].SHA256 == got[0].SHA256 || again[1].SHA256 != got[1].SHA256 {
		t.Errorf("%v, %v: not read again", again, err)
	}
}

// TestHashFile checks that hashing fails for a file that changes, and ends with its context.
func TestHashFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	as := lock.File{Name: "f", Size: st.Size(), ModTime: st.ModTime()}
	if _, err := hashFile(context.Background(), file, as, func(int) {}); err != nil {
		t.Error(err)
	}
	grow := func(int) {
		if err := os.Truncate(file, 4<<20); err != nil {
			t.Error(err)
		}
	}
	if _, err := hashFile(context.Background(), file, as, grow); err == nil || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("%v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	if _, err := hashFile(ctx, file, as, func(int) { stop() }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestMeter checks that the bytes of several reads are added up.
func TestMeter(t *testing.T) {
	var last engine.Progress
	m := meter(10, func(p engine.Progress) { last = p })
	m(3)
	m(7)
	if last != (engine.Progress{Done: 10, Total: 10}) {
		t.Errorf("%+v", last)
	}
}
