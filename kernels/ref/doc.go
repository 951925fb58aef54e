// Package ref defines each kernel as a plain loop in Go: the oracle that fast kernels are
// compared with.
//
// It must not be optimized, and it does not know programs, pages' owners or devices. Start
// reading at Linear in linear.go or Attention in attention.go.
//
// A function computes its operation in the order of the formula. Callers guarantee lengths; a
// wrong length is a programming error and panics.
package ref
