package kernels

import "testing"

// TestFormatBytes: block sizes are GGUF's; a wrong one would shift every tensor of a file.
func TestFormatBytes(t *testing.T) {
	for name, want := range map[string]int64{
		"f32": 4096, "f16": 2048, "bf16": 2048, "q8_0": 1088, "q4_0": 576, "q4_1": 640, "q4_k": 576, "q6_k": 840,
	} {
		f, ok := Parse(name)
		if !ok || f.String() != name {
			t.Errorf("Parse(%q) = %v, %v", name, f, ok)
		}
		if got := f.Bytes(1024); got != want {
			t.Errorf("%s: %d bytes for 1024 elements, want %d", name, got, want)
		}
	}
}
