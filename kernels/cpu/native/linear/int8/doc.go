// Package int8 holds the C kernels of Linear with quantized weights and integer activations.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at int8.h, which defines the arithmetic, then generic.c.
package int8

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/linear"
	_ "vapp.dev/kernels/cpu/native/shared"
)
