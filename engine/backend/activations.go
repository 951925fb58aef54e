package backend

import "vapp.dev/kernels"

// The values of Settings.Activations.
const (
	// Int8Activations makes backend cpu round inputs to int8 where a weight's blocks hold integers.
	Int8Activations = "int8"
	// FP8Activations makes backends cuda and ref round inputs to E4M3 where the weight is F8E4M3.
	FP8Activations = "fp8"
)

// CUBLASLt is a value of Settings.Linear. Dense weights of 16-bit floats are stored row by row, and
// NVIDIA's library multiplies them in steps of many rows. With FP8Activations it does so for F8E4M3 too, on
// devices for which the library has the weight's scaling.
const CUBLASLt = "cublaslt"

// CUBLASLtWorkspace is the library's share of the workspace, in bytes. It bounds what an algorithm may
// use; NVIDIA recommends this size for Hopper.
const CUBLASLtWorkspace = 32 << 20

// FP8Inputs returns w with the setting FP8Activations applied: a matrix of F8E4M3 gets RoundInputs,
// other weights stay unchanged. It returns ErrUnsupported, in the name of the backend, for
// weights of 8-bit floats that no kernel multiplies with such inputs.
func FP8Inputs(backend string, w WeightSpec) (WeightSpec, error) {
	f := w.Stored()
	switch {
	case w.Use&Multiply == 0:
	case f == kernels.F8E5M2:
		return w, Unsupported(backend, "weight "+w.Name+" with fp8 activations", "it is stored as f8_e5m2, and only f8_e4m3 is multiplied with them")
	case f == kernels.F8E4M3 && w.Scaling == PerGroup:
		return w, Unsupported(backend, "weight "+w.Name+" with fp8 activations", "its scales are per group; scales of inputs are per row or per 128 columns")
	case f == kernels.F8E4M3:
		w.RoundInputs = true
	}
	return w, nil
}

// InputGroup returns how many neighbouring inputs of a row share a scale when RoundInputs rounds
// them: ScaleBlock if the weight has scales per block, else 0, which means the whole row.
func (w WeightSpec) InputGroup() int {
	if w.Scaling == PerBlock {
		return ScaleBlock
	}
	return 0
}
