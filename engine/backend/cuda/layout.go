package cuda

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/nccl"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// granule is the unit in which the driver maps device memory; arenas are whole
// granules.
const granule = 2 << 20

// align is the alignment of a weight, in bytes: four sectors of the memory.
const align = 256

// panel is how many output features are adjacent in a packed matrix: the width of the matrix
// units' tiles.
const panel = 16

// layout is the pure half.
type layout struct {
	facts  backend.Facts
	cc     int // compute capability × 10: 80, 89, 90, 100, 120
	sms    int
	graphs backend.Graphs
	other  string      // the architecture of a non-NVIDIA device, else ""
	fp8    bool        // inputs are rounded to E4M3 for weights of E4M3
	group  *nccl.Group // of the ranks; nil: there is one
	blas   bool        // dense weights are stored row by row, and cuBLASLt multiplies them for many rows: byLibrary
	// kernels are the existing kernels, by name.
	kernels map[string]cuda.Kernel
}

// someSMs is the number of SMs assumed for a device that does not report it.
const someSMs = 132

func newLayout(f backend.Facts, s backend.Settings) (layout, error) {
	l := layout{facts: f, sms: f.SMs, graphs: s.Graphs, kernels: map[string]cuda.Kernel{}}
	for _, k := range slices.Concat(cuda.Catalogue(), cuda.LibraryProducts()) {
		l.kernels[k.Name] = k
	}
	l.kernels[collective] = cuda.Kernel{Name: collective}
	if l.sms <= 0 {
		l.sms = someSMs
	}
	var err error
	if l.group, err = groupOf(s); err != nil {
		return layout{}, err
	}
	switch {
	case s.Variant != "":
		return layout{}, backend.Unsupported(name, "variant "+s.Variant, "kernels follow the device's compute capability")
	case f.Capability == "":
		return layout{}, backend.Unsupported(name, "a device without a compute capability", "name one of the catalogue with --gpu")
	}
	major, minor, ok := strings.Cut(f.Capability, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	if !ok || errA != nil || errB != nil || a < 1 || a > 99 || b < 0 || b > 9 {
		l.other, l.cc = f.Capability, 90 // laid out like a GPU of that size
	} else {
		l.cc = 10*a + b
	}
	switch l.fp8 = s.Activations == backend.FP8Activations; {
	case s.Activations != "" && !l.fp8:
		return layout{}, backend.Unsupported(name, "activations "+s.Activations, "they are fp8, or what the matrix units take")
	case l.fp8 && l.other != "":
		return layout{}, backend.Unsupported(name, "activations fp8", "the architecture of "+f.Device+" is not CUDA's")
	case l.fp8 && l.cc < firstFP8:
		return layout{}, backend.Unsupported(name, "activations fp8", fmt.Sprintf("the matrix units of %s, compute capability %s, have no 8-bit floats: those of 8.9 and newer do", f.Device, f.Capability))
	}
	switch l.blas = s.Linear == backend.CUBLASLt; {
	case s.Linear != "" && !l.blas:
		return layout{}, backend.Unsupported(name, "linear "+s.Linear, "products are its own kernels', or cublaslt's")
	case l.blas && l.other != "":
		return layout{}, backend.Unsupported(name, "linear cublaslt", "the architecture of "+f.Device+" is not CUDA's")
	}
	return l, nil
}

// firstFP8 is the first compute capability, × 10, whose matrix units multiply 8-bit floats.
const firstFP8 = 89

// blasFP8 reports whether cuBLASLt multiplies 8-bit floats with vapp's scaling, by row or by
// blocks of 128. Only compute capability 9.0 supports cuBLASLt's outer-vector and 128-block
// scales, from release 12.9 on; a cuBLASLt of unknown version is taken for one of those.
func (l layout) blasFP8() bool { return l.blas && l.fp8 && l.cc == 90 && !l.oldBLAS() }

// oldBLAS reports whether the machine's cuBLASLt lacks those scales.
func (l layout) oldBLAS() bool {
	v := libraryVersion(l.facts.CUBLASLt)
	return v > 0 && v < driver.BLASNeedScales
}

// libraryVersion returns a version of cuBLASLt as the library numbers it: 130002 for "13.0.2". It
// returns 0 for "", and for what is no version.
func libraryVersion(text string) int {
	n := 0
	parts := strings.Split(text, ".")
	for _, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil || v < 0 || v > 99 {
			return 0
		}
		n = 100*n + v
	}
	if len(parts) != 3 {
		return 0
	}
	return n
}

// arch returns the architecture that kernels are built for.
func (l layout) arch() string {
	switch {
	case l.other != "":
		return l.other
	case l.cc == 90:
		return "sm_90a"
	}
	return "sm_" + strconv.Itoa(l.cc)
}

// Choices lists the architecture, the format of inputs in products, and the captured steps.
func (l layout) Choices() []backend.Choice {
	mode, why := l.graphs.Mode, "no step is captured"
	if mode == "" || mode == "none" {
		mode = "none"
	} else if n := len(l.graphs.Sizes); n > 0 {
		why = fmt.Sprintf("%d sizes, the largest of %d tokens", n, l.graphs.Sizes[n-1])
	}
	activations := backend.Choice{Name: "activations", Value: l.half().String(), Why: "what the matrix units take"}
	if l.fp8 {
		activations.Value, activations.Why = backend.FP8Activations, "as set, with weights of f8_e4m3; with others "+l.half().String()
	}
	out := []backend.Choice{
		{Name: "architecture", Value: l.arch(), Why: "compute capability of " + l.facts.Device},
		activations,
		{Name: "graphs", Value: mode, Why: why},
	}
	if l.blas {
		dense, other := "bf16 and f16", ""
		switch {
		case l.blasFP8():
			dense = "bf16, f16 and f8_e4m3"
		case l.fp8 && l.cc == 90:
			other = "; f8_e4m3 is vapp's: the library scales by row and by block from 12.9 on"
		case l.fp8:
			other = "; f8_e4m3 is vapp's: the library scales by row and by block on compute capability 9.0 alone"
		}
		out = append(out, backend.Choice{Name: "linear", Value: backend.CUBLASLt, Why: fmt.Sprintf("%s, for dense %s beyond %d rows%s; %d MiB of the workspace are the library's", l.library(), dense, cuda.DecodeRows, other, backend.CUBLASLtWorkspace>>20)})
	}
	return out
}

// library returns which cuBLASLt a plan is for.
func (l layout) library() string {
	switch v := l.facts.CUBLASLt; {
	case v == "":
		return "as set"
	case l.facts.Measured:
		return v + " is found"
	default:
		return v + " is assumed"
	}
}

// Packing implements backend.PackingLayout: the architecture, and who multiplies.
func (l layout) Packing() string {
	s := l.arch()
	if l.fp8 {
		s += " with fp8 activations"
	}
	if l.blas {
		s += " for " + backend.CUBLASLt
	}
	return s
}

// half returns the 16-bit format of the matrix units: Volta and Turing have no bf16.
func (l layout) half() kernels.Format {
	if l.cc < 80 {
		return kernels.F16
	}
	return kernels.BF16
}

// KVFormats returns the formats that attention reads: 16 bits, then the 8-bit floats, which
// every architecture widens in registers, and float32, which the matrix units do not support.
func (l layout) KVFormats() []kernels.Format {
	if l.cc < 80 {
		return []kernels.Format{kernels.F16, kernels.F8E4M3, kernels.F8E5M2}
	}
	return []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.F8E5M2, kernels.F32}
}

// Round returns n rounded up to whole granules.
func (l layout) Round(n int64) int64 { return (n + granule - 1) / granule * granule }

func up(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// Weight stores vectors as F32 and matrices in their own format, in panels of output
// features, followed by F32 scales. bf16 becomes fp16 if the matrix units lack it.
func (l layout) Weight(w backend.WeightSpec) (backend.Packed, error) {
	w, err := l.spec(w)
	if err != nil {
		return backend.Packed{}, err
	}
	if w.Rows <= 0 || w.Cols <= 0 {
		return backend.Packed{}, backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("its shape is %d×%d", w.Rows, w.Cols))
	}
	if w.Use&backend.Vector != 0 {
		return backend.Packed{Format: kernels.F32, Bytes: up(4*w.Elems(), align), Kernel: "vector"}, nil
	}
	p := backend.Packed{Format: w.Stored()}
	switch {
	case p.Format == kernels.Invalid:
		p.Format, p.Note = l.half(), "its parts have several formats: converted to "+l.half().String()
	case p.Format == kernels.BF16 && l.half() != kernels.BF16:
		p.Format, p.Note = kernels.F16, l.arch()+" has no bf16: converted to f16"
	case p.Format == kernels.I32 || p.Format == kernels.U32 || p.Format == kernels.U8:
		return p, backend.Unsupported(name, "weight "+w.Name, "it is stored as "+p.Format.String())
	}
	block, _ := p.Format.Block()
	if w.Cols%block != 0 {
		return p, backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("rows of %d are no whole %v blocks", w.Cols, p.Format))
	}
	m := l.matrixOf(w, p.Format)
	p.Bytes, p.Kernel = m.bytes(), m.kernel()
	return p, nil
}

// spec returns a weight with the settings for its inputs applied.
func (l layout) spec(w backend.WeightSpec) (backend.WeightSpec, error) {
	if !l.fp8 {
		return w, nil
	}
	return backend.FP8Inputs(name, w)
}

// matrix returns the layout of a program's weight in its arena.
func (l layout) matrix(w backend.WeightSpec) (matrix, error) {
	w, err := l.spec(w)
	if err != nil {
		return matrix{}, err
	}
	p, err := l.Weight(w)
	if err != nil {
		return matrix{}, err
	}
	return l.matrixOf(w, p.Format), nil
}
