package cudatest

import "testing"

// TestDriver builds the emulated driver; `make emulated-driver` uses it too.
func TestDriver(t *testing.T) { t.Log(Driver(t)) }
