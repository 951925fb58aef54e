// Package limits holds the C kernels that measure what a thread can read and multiply at most, for benchmarks to compare with.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at body.h.
package limits

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/shared"
)
