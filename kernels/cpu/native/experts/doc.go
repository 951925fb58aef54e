// Package experts holds the phases of a mixture of experts in portable C.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at experts.c; its operands are in ../shared/experts.h.
package experts

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/linear"
	_ "vapp.dev/kernels/cpu/native/shared"
)
