// Package attention holds the C kernels of attention over KV-cache pages.
//
// It must not allocate, start threads or check operands: package cpu does.
// Start reading at body.h; doc.go of package native explains the variants, and bf16_common.h what AVX-512 BF16 and AMX share.
package attention

import "C"

// The headers that the C files include from other folders; see package shared.
import (
	_ "vapp.dev/kernels/cpu/native/shared"
)
