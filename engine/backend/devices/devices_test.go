package devices

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"vapp.dev/nearest"
)

func TestFind(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"a100-80g", "a100-80g"}, {"A100", "a100-80g"}, {"NVIDIA A100-SXM4-80GB", "a100-80g"}, {"a100_40g", "a100-40g"},
		{"NVIDIA GeForce RTX 4090", "rtx-4090"}, {"rtx4090", "rtx-4090"}, {"4090", "rtx-4090"}, {"Tesla V100-SXM2-32GB", "v100-32g"},
		{"h100", "h100"}, {"nvidia h200", "h200"}, {"mi300x", "mi300x"}, {"AMD Instinct MI300X", "mi300x"},
		{"cpu-8c-32g", "cpu-8c-32g"}, {"CPU-8C-32G-avx512", "cpu-8c-32g"}, {"cpu_16c_64g_amx", "cpu-16c-64g-amx"}, {"cpu-3c-7g", "cpu-3c-7g"},
	} {
		d, err := Find(c.name)
		if err != nil || d.Name != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, d.Name, err, c.want)
		}
	}
}

func TestFindNothing(t *testing.T) {
	for _, c := range []struct{ name, near string }{
		{"a100-81g", "a100-80g"}, {"h101", "h100"}, {"rtx-4080", "rtx-4090"}, {"cpu-0c-32g", ""}, {"cpu-8c-032g", ""}, {"cpu-2000c-1g", ""}, {"", ""}, {"--", ""}, {"toaster", ""},
		{strings.Repeat("x", 1<<20), ""},
	} {
		_, err := Find(c.name)
		var unknown *UnknownError
		if !errors.As(err, &unknown) {
			t.Errorf("%.20s: %v", c.name, err)
			continue
		}
		if c.near != "" && !slices.Contains(unknown.Suggestions, c.near) {
			t.Errorf("%.20s: near are %q, want %s among them", c.name, unknown.Suggestions, c.near)
		}
		if len(err.Error()) > 300 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20s: the error is no line: %.300s", c.name, err)
		}
	}
}

// TestFindLibrary: the name of a GPU of CUDA may end in the version of a cuBLASLt, which is among its
// facts.
func TestFindLibrary(t *testing.T) {
	for name, want := range map[string]string{"h100": "", "H200+cublaslt=13.0": "13.0.0", "NVIDIA GeForce RTX 4090+cublaslt=12.9.1": "12.9.1", "v100-32g+CUBLASLT=12": "12.0.0"} {
		d, err := Find(name)
		if f := d.Facts("cuda"); err != nil || f.CUBLASLt != want {
			t.Errorf("%s: %q, %v; want %q", name, f.CUBLASLt, err, want)
		}
	}
	for _, name := range []string{
		"h200+", "h200+cublaslt", "h200+cublaslt=", "h200+cublaslt=11.8", "h200+cublaslt=13.x", "h200+cublaslt=013", "h200+cublaslt=13.0.0.1", "h200+cublaslt=13+cublaslt=13",
		"h200+cudnn=9", "mi300x+cublaslt=13.0", "cpu-8c-32g+cublaslt=13.0",
	} {
		_, err := Find(name)
		var unknown *UnknownError
		if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "may end in +cublaslt=13.0, ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTable compares the rows with each other and with hardware limits.
func TestTable(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, d := range list {
		names := append([]string{d.Name}, d.Aliases...)
		if d.Kind == GPU {
			names = append(names, d.DriverName)
		}
		for _, n := range names {
			if was, twice := seen[nearest.Folded(n)]; twice && was != d.Name {
				t.Errorf("%q names %s and %s", n, was, d.Name)
			}
			seen[nearest.Folded(n)] = d.Name
			if found, err := Find(n); err != nil || found.Name != d.Name {
				t.Errorf("%q finds %s, %v; want %s", n, found.Name, err, d.Name)
			}
		}
		within := func(what string, x, lo, hi float64) {
			if !(x >= lo && x <= hi) {
				t.Errorf("%s: %s is %g, not within %g and %g", d.Name, what, x, lo, hi)
			}
		}
		within("memory", float64(d.TotalBytes), 4<<30, 1<<40)
		within("bandwidth", d.Bandwidth, 1e10, 1e13)
		within("fp16", d.FP16, 1e11, 1e16)
		within("L2", float64(d.L2Bytes), 1<<18, 1<<28)
		if d.Source == "" || d.DriverName == "" || len(d.Variants) == 0 {
			t.Errorf("%s: source %q, driver's name %q, variants %q", d.Name, d.Source, d.DriverName, d.Variants)
		}
		if d.Kind == GPU {
			within("SMs", float64(d.SMs), 40, 512)
			within("shared memory", float64(d.SharedBytes), 64<<10, 256<<10)
			within("flop a byte", d.FP16/d.Bandwidth, 70, 600)
			if d.FP8 != 0 && math.Abs(d.FP8/d.FP16-2) > 0.03 {
				t.Errorf("%s: fp8 is %g times fp16", d.Name, d.FP8/d.FP16)
			}
		}
		if old := strings.HasPrefix(d.Name, "t4") || strings.HasPrefix(d.Name, "v100") || d.Name == "mi300x"; (d.PlanOnly != "") != old {
			t.Errorf("%s: plan only: %q", d.Name, d.PlanOnly)
		}
	}
}

// TestReference checks the totals that recorded runs were computed with.
func TestReference(t *testing.T) {
	for _, c := range []struct {
		name string
		gib  float64
	}{{"a100-80g", 79.25}, {"v100-32g", 31.74}, {"rtx-5090", 31.37}, {"l40s", 44.40}} {
		d, err := Find(c.name)
		if got := float64(d.TotalBytes) / (1 << 30); err != nil || math.Round(got*100) != math.Round(c.gib*100) {
			t.Errorf("%s: %.4f GiB, want %.2f (%v)", c.name, got, c.gib, err)
		}
	}
}

func TestBatchDefaults(t *testing.T) {
	for _, c := range []struct {
		name string
		want Batch
	}{
		{"a100-80g", Batch{2048, 256}}, {"h100", Batch{8192, 1024}}, {"rtx-5090", Batch{2048, 256}}, {"mi300x", Batch{8192, 1024}}, {"cpu-96c-384g", Batch{}},
	} {
		if d, err := Find(c.name); err != nil || d.Batch != c.want {
			t.Errorf("%s: %+v, want %+v (%v)", c.name, d.Batch, c.want, err)
		}
	}
}

func TestFacts(t *testing.T) {
	d, err := Find("v100")
	if err != nil {
		t.Fatal(err)
	}
	f := d.Facts("cuda")
	if f.Backend != "cuda" || f.Device != "Tesla V100-SXM2-32GB" || f.TotalBytes != 34079637504 || f.FreeBytes != 0 || f.Measured ||
		f.SMs != 80 || f.Capability != "7.0" || f.PlanOnly == "" || !slices.Equal(f.Variants, []string{"sm_70"}) {
		t.Errorf("%+v", f)
	}
	if d, err = Find("cpu-16c-64g-amx"); err != nil {
		t.Fatal(err)
	}
	f = d.Facts("cpu")
	if f.Cores != 16 || f.Variants[0] != "amx" || f.TotalBytes != 64<<30 || f.HugeBytes != 2<<20 || f.PlanOnly != "" {
		t.Errorf("%+v", f)
	}
}

func FuzzFind(f *testing.F) {
	for _, s := range []string{"a100", "cpu-8c-32g-amx", "cpu-99999999999999999999c-1g", "NVIDIA", "cpu--"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if d, err := Find(name); err == nil && (d.TotalBytes <= 0 || d.Name == "") {
			t.Errorf("%q: %+v", name, d)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	for b.Loop() {
		if _, err := Find("h200"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCPUOf(t *testing.T) {
	for _, c := range []struct {
		cores  int
		memory int64
		set    string
		name   string
		best   string
	}{
		{16, 64 << 30, "", "cpu-16c-64g", "avx512"}, {16, 64 << 30, "amx", "cpu-16c-64g-amx", "amx"}, {1, 1<<30 + 1, "", "cpu-1c-1024m", "avx512"},
		{4, 1, "avx2", "cpu-4c-0m", "avx2"}, {2, 8 << 30, "neon", "cpu-2c-8g", "avx512"},
	} {
		d := CPUOf(c.cores, c.memory, c.set)
		if d.Name != c.name || d.TotalBytes != c.memory || d.Cores != c.cores || d.Variants[0] != c.best || d.Kind != CPU {
			t.Errorf("%+v: %+v", c, d)
		}
	}
}
