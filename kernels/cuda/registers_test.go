package cuda_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels/cuda"
)

// compiledTable is written by `make kernels`: a digest of the sources, and a row for each
// kernel and architecture with registers, bytes of static shared memory, of the stack, of
// spills.
const compiledTable = "../../.cache/cuda/kernels.txt"

// sources returns the digest that scripts/kernels.sh writes above its table.
func sources(t *testing.T) string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"*.cu", "*.cuh"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, files...)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, f := range names {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:20]
}

// TestRegistersPage checks that docs/kernel-registers.md has what the compiler reported for
// these sources. It needs the output of `make kernels` on this machine, for all architectures;
// -update writes the page and stacks.tsv, which the plan reads. A kernel that is not compiled for an architecture does not fit
// there, or is not meant for it.
func TestRegistersPage(t *testing.T) {
	b, err := os.ReadFile(compiledTable)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if err != nil || len(lines) < 3 || lines[0] != "sources "+sources(t) {
		t.Skip("not run: these sources are not compiled here; make kernels compiles them")
	}
	compiled := map[string]map[string][]int{} // by kernel and architecture: registers, shared, stack, stores, loads
	for _, l := range lines[2:] {
		f := strings.Fields(l)
		var row []int
		for _, x := range f[2:] {
			n, err := strconv.Atoi(x)
			if err != nil {
				t.Fatal(l)
			}
			row = append(row, n)
		}
		kernel := strings.TrimPrefix(f[0], cuda.Prefix)
		if compiled[kernel] == nil {
			compiled[kernel] = map[string][]int{}
		}
		compiled[kernel][f[1]] = row
	}
	on := slices.DeleteFunc(cuda.Architectures(), func(a cuda.Architecture) bool { return compiled["norm"][a.Name] == nil })
	if len(on) < len(cuda.Architectures()) && !*goldentest.Update {
		t.Skip("not run: not compiled for all architectures here; make kernels compiles for them")
	}
	goldentest.Compare(t, "stacks.tsv", stacksOf(on, compiled))
	page := registersPage(t, on, compiled)
	goldentest.Compare(t, "../../docs/kernel-registers.md", page)
}

// stacksOf returns stacks.tsv.
func stacksOf(on []cuda.Architecture, compiled map[string]map[string][]int) string {
	var lines []string
	for _, k := range cuda.Catalogue() {
		for _, a := range on {
			if row := compiled[k.Name][a.Name]; row != nil && k.On(a) && row[2] > 0 {
				lines = append(lines, fmt.Sprintf("%s %s %d\n", k.Name, a.Name, row[2]))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// registersPage returns a row for each kernel of the catalogue, with a column for each
// architecture.
func registersPage(t *testing.T, on []cuda.Architecture, compiled map[string]map[string][]int) string {
	var b strings.Builder
	b.WriteString("# Registers and shared memory of the CUDA kernels\n\nWhat NVRTC made of [the kernels](kernels.md), written after `make kernels` by `go test ./kernels/cuda -run TestRegistersPage -update`.\n" +
		"Registers of a thread and, behind +, bytes of static shared memory of a block; bytes that spill stand there too, and more than one register's fail `make kernels-check`.\n" +
		"A block's threads and its dynamic shared memory in bytes are the most that a launch asks for.\n\n| kernel | threads | shared |")
	rule := "\n|---|---:|---:|"
	for _, a := range on {
		fmt.Fprintf(&b, " %s |", a.Name)
		rule += "---:|"
	}
	b.WriteString(rule + "\n")
	for _, k := range cuda.Catalogue() {
		fmt.Fprintf(&b, "| `%s` | %d | %d |", k.Name, k.Threads, k.Shared)
		for _, a := range on {
			row := compiled[k.Name][a.Name]
			switch {
			case row == nil && k.On(a):
				t.Errorf("%s is not compiled for %s", k.Name, a.Name)
				b.WriteString(" – |")
				continue
			case row == nil || !k.On(a):
				b.WriteString(" – |")
				continue
			}
			cell := strconv.Itoa(row[0])
			if row[1] > 0 {
				cell += " + " + strconv.Itoa(row[1])
			}
			if spilled := row[3] + row[4]; spilled > 0 {
				cell += fmt.Sprintf(" (spills %d)", spilled)
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	return b.String()
}
