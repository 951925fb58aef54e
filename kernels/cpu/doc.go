// Package cpu is the kernels in C of package native, one file per op and instruction
// set, as a backend wants them: operands, layouts of packed weights, workspaces. It
// allocates nothing, starts no thread and knows no backend.
//
// What a planner needs, packed sizes and workspaces, is plain Go without cgo:
// linear_layout.go and its like. The variants are instruction sets: generic
// (portable C), avx2, avx512, avx512bf16, amx. A caller names only those of Variants, which
// the processor has; of amx there are no kernels before the system has granted its registers.
package cpu
