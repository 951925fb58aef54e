// Package native is the kernels in C, one file per op and instruction set, and the
// calls of them. Only package cpu imports it, which knows layouts and checks
// operands: nothing is checked here.
//
// It has no tests: a package with tests inside is compiled once more with them, and
// this one takes minutes.
package native
