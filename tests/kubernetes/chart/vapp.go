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
	binary := os.Getenv("VAPP")
	if binary == "" {
		binary = "../../../bin/vapp"
	}
	c := exec.Command(binary, args...)
	var problem strings.Builder
	c.Stderr = &problem
	out, err := c.Output()
	if err != nil {
		t.Fatalf("vapp %v: %v\n%s", args, err, problem.String())
	}
	return string(out)
}
