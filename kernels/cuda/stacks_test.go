package cuda_test

import (
	"slices"
	"testing"

	"vapp.dev/kernels/cuda"
)

// TestStacks checks that the table names kernels and architectures that there are, and what is returned for others.
func TestStacks(t *testing.T) {
	most := 0
	for _, a := range cuda.Architectures() {
		n, name := cuda.StackBytes(a.Name)
		if n == 0 && name == "" {
			continue
		}
		most = max(most, n)
		i := slices.IndexFunc(cuda.Catalogue(), func(k cuda.Kernel) bool { return k.Name == name })
		if n <= 0 || i < 0 || !cuda.Catalogue()[i].On(a) {
			t.Errorf("%s: %d bytes of %q, which is no kernel there", a.Name, n, name)
		}
	}
	if n, _ := cuda.StackBytes("sm_75"); n != most {
		t.Errorf("an architecture without machine code: %d bytes, want the most of all, %d", n, most)
	}
}
