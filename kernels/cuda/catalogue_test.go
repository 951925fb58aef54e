package cuda_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// TestCatalogue checks that the listed kernels are exactly those of the device, that their
// arguments have the size of the Go structs, and that their files and tests exist.
func TestCatalogue(t *testing.T) {
	r := newRig(t)
	there, err := r.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			if name, ok := strings.CutPrefix(line, "func "); ok {
				tests[strings.SplitN(name, "(", 2)[0]] = true
			}
		}
	}
	listed := map[string]bool{}
	for _, k := range cuda.Catalogue() {
		size, ok := there[k.Name]
		if !ok || size != k.Args {
			t.Errorf("%s: arguments of %d bytes are listed, the kernel has %d (there: %v)", k.Name, k.Args, size, ok)
		}
		if listed[k.Name] {
			t.Errorf("%s is listed twice", k.Name)
		}
		listed[k.Name] = true
		if _, err := os.Stat(k.Stem + ".cu"); err != nil {
			t.Error(err)
		}
		for _, name := range strings.Split(k.Test, ", ") {
			if !tests[name] {
				t.Errorf("%s: there is no %s", k.Name, name)
			}
		}
		if k.Threads <= 0 || k.Threads > 1024 || k.Bytes == "" || k.Flops == "" || k.Op == "" {
			t.Errorf("%s: threads, bytes, flops or op are not valid: %+v", k.Name, k)
		}
	}
	for name := range there {
		if !listed[name] && !strings.HasPrefix(name, "fault_") {
			t.Errorf("%s is not listed", name)
		}
	}
}

// table returns docs/kernels.md.
func table() string {
	var b strings.Builder
	b.WriteString(`# CUDA kernels

What ` + "`make kernels`" + ` compiles, generated from ` + "`kernels/cuda/catalogue.go`" + ` (` + "`go test ./kernels/cuda -run TestKernelsPage -update`" + `).
Every kernel is held against ` + "`kernels/ref`" + ` on the host, where the same source runs as fibers (` + "`kernels/cuda/emulation`" + `), by
the test that the last column names; nothing here has run on a device yet. Bytes are of device memory, by the shapes of an op, with activations in
float32; *format* is the bytes of one number.
Expected shares are of a device's copy bandwidth or of its rate in the format that is multiplied, reasoned from the machine
code and not measured. sm_100 and sm_120 multiply by mma.sync: their own units (tcgen05) are not used.

| op | format | kernel | architectures | bytes | flops | expected share | test |
|---|---|---|---|---|---|---|---|
`)
	type row struct {
		op, rest       string
		formats, names []string
	}
	var rows []row
	for _, k := range slices.Concat(cuda.Catalogue(), cuda.LibraryProducts()) {
		on, all := []string{}, true
		for _, a := range cuda.Architectures() {
			if k.On(a) {
				on = append(on, a.Name)
			} else {
				all = false
			}
		}
		where := strings.Join(on, ", ")
		if all {
			where = "all"
		}
		format := cmp.Or(k.Format, "–")
		rest := fmt.Sprintf("%s | %s | %s | %s | %s |\n", where, k.Bytes, k.Flops, cmp.Or(k.Share(), "–"), k.Test)
		if n := slices.IndexFunc(rows, func(r row) bool { return r.op == k.Op && r.rest == rest }); n >= 0 {
			if !slices.Contains(rows[n].formats, format) {
				rows[n].formats = append(rows[n].formats, format)
			}
			rows[n].names = append(rows[n].names, "`"+k.Name+"`")
			continue
		}
		rows = append(rows, row{k.Op, rest, []string{format}, []string{"`" + k.Name + "`"}})
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s", r.op, strings.Join(r.formats, ", "), strings.Join(r.names, ", "), r.rest)
	}
	b.WriteString("\nAll architectures are ")
	for i, a := range cuda.Architectures() {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%d KiB of shared memory for a block)", a.Name, a.Shared>>10)
	}
	b.WriteString("; [cuda-drivers.md](cuda-drivers.md) says which GPU and driver run which. The products named cublaslt are NVIDIA's library's, where a profile says cuda: linear: \"cublaslt\".\nRegisters and shared memory of each: [kernel-registers.md](kernel-registers.md).\n")
	b.WriteString(mutantTable())
	return b.String()
}

// TestKernelsPage checks that docs/kernels.md agrees with the catalogue.
func TestKernelsPage(t *testing.T) {
	goldentest.ComparePage(t, "../..", "kernels.md", table())
}

// TestChoices checks that every shape has a kernel of the catalogue that fits, on every
// architecture.
func TestChoices(t *testing.T) {
	listed := map[string]cuda.Kernel{}
	for _, k := range cuda.Catalogue() {
		listed[k.Name] = k
	}
	for _, f := range cuda.PackedFormats() {
		for _, rows := range []int{1, 8, 9, 16, 17, 64, 65, 4096} {
			l, ok := cuda.ChooseLinear(f, rows)
			if k, there := listed[l.Kernel]; !ok || !there || k.Shared != l.Shared || l.Rows < min(rows, cuda.DecodeRows) {
				t.Errorf("%v, %d rows: %+v, %+v", f, rows, l, k)
			}
			for _, a := range cuda.Architectures() {
				if l.Shared > a.Shared {
					t.Errorf("%s asks for %d bytes, %s has %d", l.Kernel, l.Shared, a.Name, a.Shared)
				}
			}
		}
	}
	for dim := 8; dim <= 512; dim += 8 {
		for _, a := range cuda.Architectures() {
			few, ok := cuda.ChooseAttention(kernels.BF16, dim, false, a.Shared)
			if k, there := listed[few.Kernel]; !ok || !there || k.Shared != few.Shared {
				t.Errorf("heads of %d on %s: %+v", dim, a.Name, few)
			}
			if many, ok := cuda.ChooseAttention(kernels.BF16, dim, true, a.Shared); ok != (many.Shared <= a.Shared) || listed[many.Kernel].Name == "" {
				t.Errorf("heads of %d on %s: %+v, %v", dim, a.Name, many, ok)
			}
		}
	}
	if _, ok := cuda.ChooseAttention(kernels.BF16, 520, false, maxShared); ok {
		t.Error("heads of 520 have a kernel")
	}
	l, _ := cuda.ChooseLinear(kernels.BF16, 1)
	if got, want := [3]int{l.Splits(1024, 8192, 1, 132), l.Splits(65536, 8192, 1, 132), l.Splits(1024, 256, 1, 132)}, [3]int{8, 1, 1}; got != want {
		t.Errorf("splits of 1024×8192, 65536×8192 and 1024×256: %v, want %v", got, want)
	}
}
