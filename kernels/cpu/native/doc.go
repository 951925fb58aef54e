// Package native holds the CPU kernels in C and the Go functions that call them.
//
// Each family has a folder, which is a package: the go command compiles C only in the folder
// of a package. kernels.c and linear.c find the function of an op for an instruction set.
//
//	shared        headers of several families: operands, vectors, tiles, targets
//	attention     attention over pages of the KV cache
//	linear        matrix products with packed weights; int8 and w8a8 have integer activations
//	experts       mixture of experts, on the kernels of linear
//	activation    gated activations and other elementwise ops
//	norm          norms and rotary embedding
//	state         recurrent layers
//	sample        logits to tokens
//	portable      ops that need no instruction set of their own
//	formats       decoding and rounding of stored numbers
//	limits        measurements of what a thread can read and multiply
//
// File names have these parts:
//
//	generic.c           portable C
//	avx2_amd64.c        for one instruction set; the go command compiles *_amd64.c on x86-64 only.
//	                    The sets are avx2, avx512, avx512bf16, amx, vnni (AVX-512 VNNI) and
//	                    int15 (VNNI on activations of 15 bits)
//	neon_arm64.c        the same for 64-bit ARM. The sets are neon, dotprod (SDOT) and i8mm
//	                    (SMMLA); int15_ begins the names of activations of 15 bits
//	amx_soft_amd64.c    AMX with the tiles in memory, for tests on machines without AMX
//	body.h, *_body.h    a kernel written once and compiled for several sets: a .c file includes
//	                    it after a target header
//	target_*.h          chooses an instruction set. The shared ones compile all functions that
//	                    follow for it, until target_end.h; those of linear define FN, the
//	                    attribute of single functions, and the sizes of the kernel
//
// A header includes what it uses and compiles alone for each of its targets;
// scripts/check-headers.sh checks that.
//
// It must not check operands or know layouts: package cpu does, and nothing else imports this
// package. It has no tests, because a package with tests is compiled once more with them.
// Start reading at native.go, then shared/kernels.h.
package native
