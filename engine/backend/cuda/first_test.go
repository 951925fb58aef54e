//go:build linux && cgo && cuda

package cuda

import (
	"os"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/backendtest"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels/cuda"
)

// TestFirst loads all files of kernels and finds each kernel in them, and then runs the first case of each part of the
// suite, one after the other, until one fails: what a wrong file of kernels fails in seconds. It is for gpu-check; TestParts
// runs the same cases and more. On an emulated device it checks that kernels of every file have run, but for those of
// cuBLASLt's layout, which TestShapes runs.
func TestFirst(t *testing.T) {
	if os.Getenv("VAPP_GPU") == "" && !allShapes {
		t.Skip("not run: TestParts runs the same cases")
	}
	emulated(t)
	d, err := opened(t, backend.Settings{})
	check(t, err)
	check(t, d.do(func() error {
		for _, k := range cuda.Catalogue() {
			if _, err := d.function(k.Name); err != nil {
				return err
			}
		}
		return nil
	}))
	t.Logf("%d kernels of %d files are there", len(cuda.Catalogue()), len(cuda.Stems()))
	for _, name := range backendtest.Parts() {
		every := 1 << 30
		if name == "linear of scaled weights" {
			every = 40 // its 41st case is the first of nvfp4, whose kernels have a file of their own
		}
		if suite.Part(t, name, every); t.Failed() {
			t.Fatalf("the rest is not run: %s failed", name)
		}
	}
	if driver.Counted("kernel") < 0 {
		return
	}
	var unrun []string
	for _, stem := range cuda.Stems() {
		if !slices.ContainsFunc(cuda.Catalogue(), func(k cuda.Kernel) bool { return k.Stem == stem && driver.Counted(cuda.Prefix+k.Name) > 0 }) {
			unrun = append(unrun, stem)
		}
	}
	if want := []string{"linear_plain"}; !slices.Equal(unrun, want) {
		t.Errorf("no kernel of %v has run, want those of %v", unrun, want)
	}
}
