package chart

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Vapp runs the binary that `make build` made, or that VAPP names, and returns its stdout. A test of a package two folders
// below the module's root calls it.
func Vapp(t testing.TB, args ...string) string {
	t.Helper()
	out, refusal := run(t, args...)
	if refusal != "" {
		t.Fatalf("vapp %v: %s", args, refusal)
	}
	return out
}

// run returns the binary's stdout and, if it fails, how and its stderr.
func run(t testing.TB, args ...string) (out, refusal string) {
	t.Helper()
	binary := os.Getenv("VAPP")
	if binary == "" {
		binary = "../../../bin/vapp"
	}
	c := exec.Command(binary, args...)
	var problem strings.Builder
	c.Stderr = &problem
	text, err := c.Output()
	if err != nil {
		refusal = err.Error() + "\n" + problem.String()
	}
	return string(text), refusal
}
