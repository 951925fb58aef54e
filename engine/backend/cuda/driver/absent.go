//go:build !linux || !cgo || !cuda

package driver

// Built reports whether this binary has the native half.
const Built = false

// Devices fails with ErrNotBuilt.
func Devices() ([]Info, error) { return nil, ErrNotBuilt }

// FindBLAS fails with ErrNotBuilt.
func FindBLAS() (version int, path string, err error) { return 0, "", ErrNotBuilt }
