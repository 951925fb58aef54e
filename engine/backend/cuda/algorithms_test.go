package cuda

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine/backend"
)

func someAlgorithms() algorithms {
	return newAlgorithms(backend.Facts{Device: "NVIDIA H200", Capability: "9.0", SMs: 132}, "13.0.2")
}

// TestAlgorithmsFile: algorithms are read as they were written. A file that is torn, too large or of
// another device, library or format is not used, and the reason names it; a file that is not there is none.
func TestAlgorithmsFile(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	a := someAlgorithms()
	path, err := a.path()
	if err != nil {
		t.Fatal(err)
	}
	if why := a.read(path); why != "" || len(a.Chosen) != 0 {
		t.Errorf("no file: %q, %v", why, a.Chosen)
	}
	a.Chosen = map[string]string{"bf16 64 rows": "00ff", "bf16 128 rows": "01"}
	if err := a.write(path, nil); err != nil {
		t.Fatal(err)
	}
	again := someAlgorithms()
	if why := again.read(path); why != "" || !maps.Equal(again.Chosen, a.Chosen) {
		t.Errorf("%q, %v", why, again.Chosen)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string]string{
		"it is damaged: unexpected end":          string(whole[:len(whole)/2]),
		"it is damaged: its checksum is another": strings.Replace(string(whole), "00ff", "00fe", 1),
		"it has format 2, this vapp reads 1":     strings.Replace(string(whole), `"format": 1`, `"format": 2`, 1),
		`and cuBLASLt "13.0.3"`:                  strings.Replace(string(whole), "13.0.2", "13.0.3", 1),
		`it is of "NVIDIA H100, compute`:         strings.Replace(string(whole), "NVIDIA H200", "NVIDIA H100", 1),
		"is no file of at most 2048 KiB":         string(whole) + strings.Repeat(" ", mostAlgorithmBytes),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		again := someAlgorithms()
		if why := again.read(path); !strings.Contains(why, want) || !strings.HasPrefix(why, path) || len(again.Chosen) != 0 {
			t.Errorf("%q, want %q; %v", why, want, again.Chosen)
		}
	}
	other := someAlgorithms()
	other.Library = "13.0.3"
	if p, err := other.path(); err != nil || p == path {
		t.Errorf("another library has the file %s, %v", p, err)
	}
}

// TestAlgorithmsBounded: a file has at most so many algorithms, and those in use are among them.
func TestAlgorithmsBounded(t *testing.T) {
	a, used := someAlgorithms(), map[string]bool{}
	for i := range mostAlgorithms + 1 {
		a.Chosen[fmt.Sprint(i)] = "00"
	}
	used["7"], used["8"] = true, true
	path := filepath.Join(t.TempDir(), "a", "b.json")
	if err := a.write(path, used); err != nil {
		t.Fatal(err)
	}
	again := someAlgorithms()
	if why := again.read(path); why != "" || len(again.Chosen) != 2 || again.Chosen["7"] == "" {
		t.Errorf("%q, %d algorithms", why, len(again.Chosen))
	}
}

func TestFastest(t *testing.T) {
	for _, c := range []struct {
		times []time.Duration
		want  int
	}{{nil, -1}, {[]time.Duration{-1, -1}, -1}, {[]time.Duration{3, 1, 2}, 1}, {[]time.Duration{-1, 2, 2}, 1}, {[]time.Duration{0, -1}, 0}} {
		if got := fastest(c.times); got != c.want {
			t.Errorf("%v: %d, want %d", c.times, got, c.want)
		}
	}
}

// FuzzAlgorithms: no text panics, and what is read is within the bounds and unchanged.
func FuzzAlgorithms(f *testing.F) {
	a := someAlgorithms()
	f.Add([]byte(`{}`))
	f.Add([]byte(fmt.Sprintf(`{"format":1,"device":%q,"cublaslt":"13.0.2","chosen":{},"sha256":%q}`, a.Device, a.sum())))
	f.Fuzz(func(t *testing.T, text []byte) {
		chosen, err := someAlgorithms().parse(text)
		if err == nil && len(chosen) > mostAlgorithms {
			t.Errorf("%d algorithms", len(chosen))
		}
	})
}
