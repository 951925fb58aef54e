//go:build !linux || !cgo

package main

// native reports whether this binary has the C kernels.
const native = false
