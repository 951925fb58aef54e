// Package norm holds the C kernels of the norms and of rotary embedding.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at body.h.
package norm

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/shared"
)
