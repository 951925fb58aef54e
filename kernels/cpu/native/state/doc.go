// Package state holds the C kernels of recurrent layers: the causal convolution and the gated delta rule.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at body.h.
package state

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/shared"
)
