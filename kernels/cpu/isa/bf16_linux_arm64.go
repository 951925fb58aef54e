package isa

import "golang.org/x/sys/unix"

// From Linux's auxvec.h and hwcap.h for ARM: the entry with a processor's features, and BF16.
const (
	atHWCAP2   = 26
	hwcap2BF16 = 1 << 14
)

// bf16OfARM is whether the processor has BFMMLA, for which x/sys/cpu has no field.
var bf16OfARM = func() bool {
	entries, err := unix.Auxv()
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e[0] == atHWCAP2 {
			return e[1]&hwcap2BF16 != 0
		}
	}
	return false
}()
