// Package ref is each kernel as a plain loop in Go: the oracle.
//
// Nothing here is clever. A function is the definition of its operation in the
// order that the formula reads, so that a fast kernel can be judged against it.
// Callers guarantee lengths; a wrong length is a programming error and panics.
package ref
