//go:build soak

package cuda_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/kernels/cuda/cudatest"
)

// TestMutants breaks the kernels in one place at a time: each time a test must fail.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.TrimSuffix(strings.TrimSuffix(m.file, "h"), ".cu"), func(t *testing.T) { m.run(t) })
	}
}

func (m mutant) run(t *testing.T) {
	source := t.TempDir()
	if err := os.CopyFS(source, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, m.file), []byte(m.broken(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.timeout", "30m", "-test.failfast", "-test.run", m.test)
	cmd.Env = append(os.Environ(), cudatest.Source+"="+source)
	out, err := cmd.CombinedOutput()
	why := ""
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, "_test.go:") {
			why = strings.TrimSpace(line)
			break
		}
	}
	if err == nil || !strings.Contains(string(out), "--- FAIL") || strings.Contains(string(out), "error:") {
		t.Fatalf("%s: %q as %q: no test fails\n%s", m.file, m.old, m.new, out)
	}
	t.Logf("%s: %q: %.120s", m.file, m.old, why)
}
