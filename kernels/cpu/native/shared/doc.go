// Package shared holds the C headers that several families of kernels include: operands and op
// numbers (kernels.h, linear.h, experts.h), vectors (vec.h, act.h), AMX tiles (tiles.h) and
// the headers that choose an instruction set (target_*.h).
//
// It must not include a header of another folder, and has no C to compile.
// Start reading at kernels.h.
package shared
