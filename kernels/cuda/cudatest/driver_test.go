package cudatest

import "testing"

// TestDriver builds the emulated driver and NCCL; `make emulated-driver` uses it too.
func TestDriver(t *testing.T) {
	t.Log(Driver(t))
	path, err := BuildNCCL()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(path)
}
