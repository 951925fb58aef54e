// Package activation holds the elementwise C kernels: gated activations (GLU), add, gate,
// activate and softcap; and low-rank adapters.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at body.h.
package activation

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/shared"
)
