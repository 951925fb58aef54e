package cuda

// Ceilings are rates of a device that this backend's kernels have no part in.
type Ceilings struct {
	Copy    float64 // bytes a second that cuMemcpyDtoD reads and writes, both counted
	Library float64 // operations a second of cuBLASLt's bf16 product of square matrices; 0: not measured
	Version int     // of cuBLASLt: 130101 is 13.1.1
	Why     string  // why Library was not measured
}
