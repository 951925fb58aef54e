package cudatest

import "testing"

// TestDriver builds the emulated driver, for `make emulated-driver` too.
func TestDriver(t *testing.T) { t.Log(Driver(t)) }
