// Package w8a8 holds the C kernels of Linear with int8 weights and int8 activations, with one scale for each output and one for each row.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at w8a8.h, which defines the arithmetic, then generic.c.
package w8a8

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/linear"
	_ "vapp.dev/kernels/cpu/native/linear/int8"
	_ "vapp.dev/kernels/cpu/native/shared"
)
