//go:build cgo

package main

// withC reports whether this binary has the C kernels.
const withC = true
