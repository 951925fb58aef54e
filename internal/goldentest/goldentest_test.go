package goldentest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a testing.TB that keeps the failures.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }

// TestCompare checks that an equal file passes, that another fails with both texts, and that
// -update writes the file.
func TestCompare(t *testing.T) {
	defer func(was bool) { *Update = was }(*Update)
	*Update = false
	path := filepath.Join(t.TempDir(), "golden.txt")
	if err := os.WriteFile(path, []byte("one\ntwo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &recorder{TB: t}
	if Compare(r, path, "one\ntwo\n"); len(r.failures) != 0 {
		t.Errorf("an equal file fails: %q", r.failures)
	}
	if Compare(r, path, "one\nthree\n"); len(r.failures) != 1 || !strings.Contains(r.failures[0], "two") || !strings.Contains(r.failures[0], "three") {
		t.Errorf("got failures %q, want one that names both texts", r.failures)
	}
	*Update = true
	Compare(t, path, "one\nthree\n")
	if got, err := os.ReadFile(path); err != nil || string(got) != "one\nthree\n" {
		t.Errorf("-update left %q (%v)", got, err)
	}
}

// TestComparePage checks the message of a stale page.
func TestComparePage(t *testing.T) {
	defer func(was bool) { *Update = was }(*Update)
	*Update = false
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "x.md"), []byte("one\ntwo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := &recorder{TB: t}
	ComparePage(r, root, "x.md", "one\n2\n")
	want := "docs/x.md is stale: run make docs\nline 2\n-want two\n+got  2"
	if len(r.failures) != 1 || r.failures[0] != want {
		t.Errorf("got failures %q, want %q", r.failures, want)
	}
}
