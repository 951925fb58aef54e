package backend

import "vapp.dev/kernels"

// The words of Settings.Activations.
const (
	// Int8Activations: backend cpu rounds x to int8 where a weight's blocks hold integers.
	Int8Activations = "int8"
	// FP8Activations: backends cuda and ref round x to E4M3 where the weight is F8E4M3.
	FP8Activations = "fp8"
)

// CUBLASLt is the word of Settings.Linear: dense weights of 16-bit floats lie row by row, and where a
// step has many rows NVIDIA's library multiplies them; with FP8Activations also of F8E4M3, where the device
// has the library's scales for them.
const CUBLASLt = "cublaslt"

// CUBLASLtWorkspace is what that library has of the workspace, in bytes: the most that an algorithm may
// want, NVIDIA's advice for Hopper.
const CUBLASLtWorkspace = 32 << 20

// FP8Inputs is w where activations are FP8Activations: what a matrix of F8E4M3 is multiplied with
// is rounded (RoundInputs). Other weights are as they were, but those of 8-bit floats whose
// products with such inputs no kernel has: they are refused with ErrUnsupported in the name of a
// backend.
func FP8Inputs(backend string, w WeightSpec) (WeightSpec, error) {
	f := w.Stored()
	switch {
	case w.Use&Multiply == 0:
	case f == kernels.F8E5M2:
		return w, Unsupported(backend, "weight "+w.Name+" with fp8 activations", "it is stored as f8_e5m2, and only f8_e4m3 is multiplied with them")
	case f == kernels.F8E4M3 && w.Scaling == PerGroup:
		return w, Unsupported(backend, "weight "+w.Name+" with fp8 activations", "its scales are per group, and those that inputs have are of a row or of 128 columns")
	case f == kernels.F8E4M3:
		w.RoundInputs = true
	}
	return w, nil
}

// InputGroup is how many neighbours of a row share a scale where RoundInputs has it rounded, 0 for
// all of them: those of a block of the weight's scales where it has blocks.
func (w WeightSpec) InputGroup() int {
	if w.Scaling == PerBlock {
		return ScaleBlock
	}
	return 0
}
