package ratefile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/speed"
)

func rates(t testing.TB) *speed.Rates {
	t.Helper()
	r, _, err := speed.Estimate(backend.Facts{Backend: "cpu"}, "avx512bf16", 2)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var facts = backend.Facts{Device: "Some CPU", Cores: 2, TotalBytes: 24 << 30, Variants: []string{"avx512bf16", "generic"}}

// TestFile: what was written is read; nothing else stays in the folder.
func TestFile(t *testing.T) {
	path, k := filepath.Join(t.TempDir(), "a", "speed.json"), KeyOf(facts, "1")
	if _, _, err := Read(path, k); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := Writable(path); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 0 {
		t.Error(names, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 2 {
		if err := Write(path, k, rates(t), at); err != nil {
			t.Fatal(err)
		}
	}
	r, when, err := Read(path, k)
	if err != nil || !when.Equal(at) || r.Read != rates(t).Read || len(r.Linear) != len(rates(t).Linear) {
		t.Fatal(err, when)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	if err := Writable(filepath.Join(path, "speed.json")); err == nil || !strings.Contains(err.Error(), "set XDG_CACHE_HOME") {
		t.Error(err)
	}
}

// TestUnusable: files that are torn, of another machine, or of other kernels are refused with the reason.
func TestUnusable(t *testing.T) {
	path, k := filepath.Join(t.TempDir(), "speed.json"), KeyOf(facts, "1")
	if err := Write(path, k, rates(t), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := func(change func(*backend.Facts)) Key {
		f := facts
		change(&f)
		return KeyOf(f, "1")
	}
	for name, c := range map[string]struct {
		text []byte
		key  Key
		want string
	}{
		"cut":       {whole[:len(whole)/2], k, "it is damaged"},
		"empty":     {nil, k, "it is damaged"},
		"changed":   {bytes.Replace(whole, []byte(`"threads": 2`), []byte(`"threads": 3`), 1), k, "its checksum is another"},
		"format":    {bytes.Replace(whole, []byte(`"format": 1`), []byte(`"format": 9`), 1), k, "it has format 9"},
		"processor": {whole, other(func(f *backend.Facts) { f.Device = "Another" }), "it was measured on Some CPU with 2 cores, this is Another with 2"},
		"cores":     {whole, other(func(f *backend.Facts) { f.Cores = 4 }), "this is Some CPU with 4"},
		"memory":    {whole, other(func(f *backend.Facts) { f.TotalBytes = 64 << 30 }), "24 GiB of memory, there are 64"},
		"variants":  {whole, other(func(f *backend.Facts) { f.Variants = []string{"generic"} }), "this machine has generic"},
		"kernels":   {whole, KeyOf(facts, "2"), "it is stale"},
		"large":     {make([]byte, most+1), k, "at most"},
	} {
		if err := os.WriteFile(path, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		var e *UnusableError
		if _, _, err := Read(path, c.key); !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "vapp doctor --measure") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestPath: one file for a machine, whatever the version of the kernels.
func TestPath(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	a, err := Path(KeyOf(facts, "1"))
	b, err2 := Path(KeyOf(facts, "2"))
	if a != b || errors.Join(err, err2) != nil {
		t.Error(a, b, err, err2)
	}
	f := facts
	f.Cores = 3
	if c, _ := Path(KeyOf(f, "1")); c == a {
		t.Error("machines share a file")
	}
}

// FuzzParse: no text crashes, and what is accepted passes the check of rates.
func FuzzParse(f *testing.F) {
	path, k := filepath.Join(f.TempDir(), "speed.json"), KeyOf(facts, "1")
	if err := Write(path, k, rates(f), time.Unix(0, 0)); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":1,"rates":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, _, why := parse(text, k)
		if why == "" && r.Check() != nil {
			t.Error(r.Check())
		}
	})
}
