// Package portable holds the ops that move numbers and have one version, in portable C.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at step.c; draft.c has the ops of speculative decoding.
package portable

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/shared"
)
