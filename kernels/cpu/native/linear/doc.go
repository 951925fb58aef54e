// Package linear holds the C kernels of Linear, Y = X · Wᵀ, with float or bf16 products on packed weights.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at panel.h, which describes the packed weights, then generic.c.
package linear

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/shared"
)
