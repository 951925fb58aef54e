//go:build cgo

package main

// withC says that this binary has the kernels that are C.
const withC = true
