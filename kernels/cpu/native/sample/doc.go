// Package sample holds the C kernels that turn a row of logits into a token.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at body.h.
package sample

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/shared"
)
