// Package goldentest compares what a test produced with a golden file, and writes the file with the
// flag -update. It defines the only such flag of the tree. It must not import any package of the
// module, so that tests of every layer can use it. Start reading at Compare.
package goldentest

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// Update is the flag -update. Give it to one package at a time (go test ./schema -update): a
// package without golden files does not know the flag.
var Update = flag.Bool("update", false, "write the golden files and generated pages instead of comparing with them")

// Compare fails t where the file at path is not got. With -update it writes got to path instead.
func Compare(t testing.TB, path, got string) {
	t.Helper()
	if same(t, path, got) {
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; -update writes it", err)
	}
	t.Errorf("%s differs (-want +got); -update writes it:\n%s", path, cmp.Diff(string(want), got))
}

// CompareArchive compares the archive got with the txtar file at path. With -update it writes the
// file instead.
func CompareArchive(t testing.TB, path string, got *txtar.Archive) {
	t.Helper()
	Compare(t, path, string(txtar.Format(got)))
}

// ComparePage fails t where the generated page docs/name is not got. root is the path from the
// test's folder to the root of the module. With -update it writes the page instead.
func ComparePage(t testing.TB, root, name, got string) {
	t.Helper()
	path := filepath.Join(root, "docs", filepath.FromSlash(name))
	if same(t, path, got) {
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run make docs", err)
	}
	t.Errorf("docs/%s is stale: run make docs\n%s", name, firstDifference(string(want), got))
}

// same reports whether the file at path holds got. With -update it writes the file first.
func same(t testing.TB, path, got string) bool {
	t.Helper()
	have, err := os.ReadFile(path)
	if err == nil && string(have) == got {
		return true
	}
	if !*Update {
		return false
	}
	if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
	return true
}

// firstDifference returns the first line in which the page and the text differ.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	line := func(lines []string, i int) string {
		if i < len(lines) {
			return lines[i]
		}
		return "(end of the page)"
	}
	i := 0
	for i < len(w) && i < len(g) && w[i] == g[i] {
		i++
	}
	return "line " + strconv.Itoa(i+1) + "\n-want " + line(w, i) + "\n+got  " + line(g, i)
}
