// Package formats holds the conversions of stored numbers in portable C: decoding of block formats, rounding to bfloat16, binary16 and E4M3.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at dequantize.c.
package formats

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/shared"
)
