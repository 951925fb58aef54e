// Package enginetest writes toy checkpoints of every family for tests.
//
// WriteLlama and WriteGGUF make a whole model of random weights, a few hundred
// kilobytes, that the engine opens like a real one. Golden files beside them
// hold what the upstream implementation computed for recorded checkpoints.
package enginetest
