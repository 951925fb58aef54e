// Package enginetest writes small models for tests and reads golden files.
//
// WriteLlama and WriteGGUF write a complete model with random weights, a few hundred kilobytes,
// that the engine opens like a real one. Golden files hold the results of the upstream
// implementation for recorded checkpoints. It must not be imported by anything but tests. Start
// reading at Llama in llama.go and Golden in golden.go.
package enginetest
