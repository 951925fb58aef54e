// Package cpu offers the C kernels of package native to a backend: operands, layouts of packed
// weights and workspaces. A planner needs only the plain Go part, without cgo: packed sizes
// (linear_layout.go) and workspaces (args.go).
//
// The variants of a kernel are instruction sets: generic (portable C), avx2, avx512,
// avx512bf16, amx. A caller may use only those that Variants returns: the processor has them,
// and for amx the system has granted the tile registers.
//
// It must not allocate memory, start threads or import a backend. Start reading at args.go,
// then linear_layout.go.
package cpu
