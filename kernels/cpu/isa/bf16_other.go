//go:build !(linux && arm64)

package isa

// bf16OfARM is whether this is a processor of 64-bit ARM with BFMMLA; only Linux says so.
var bf16OfARM = false
