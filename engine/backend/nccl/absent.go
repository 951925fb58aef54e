//go:build !linux || !cgo || !cuda

package nccl

// Built reports whether this binary has the native half.
const Built = false

// native is empty.
type native struct{}

// UniqueID fails with ErrNotBuilt.
func UniqueID() ([]byte, error) { return nil, ErrNotBuilt }

// Version fails with ErrNotBuilt.
func Version() (int, error) { return 0, ErrNotBuilt }
