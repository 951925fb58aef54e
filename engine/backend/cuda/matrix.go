package cuda

import (
	"fmt"
	"math"
	"slices"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// matrix is the layout of a weight that is no vector in its arena: panels or rows, then
// scales.
type matrix struct {
	backend.WeightSpec
	stored  kernels.Format
	panels  bool  // panels; else row by row
	blas    bool  // row by row for cuBLASLt
	each    int64 // bytes of one expert's matrix without scales
	scaling backend.Scaling
	scales  int64 // offset of the scales of all experts
	count   int   // number of scales
	across  int   // scales from one row of blocks to the next
	half    int   // panels hold rows of two halves, this many each, in the order of cuda.GateUpRow; 0: in their own
}

// matrixOf returns the layout of a weight that is stored as f.
func (l layout) matrixOf(w backend.WeightSpec, f kernels.Format) matrix {
	m := matrix{WeightSpec: w, stored: f, blas: l.byLibrary(w, f)}
	m.panels = !m.blas && cuda.Packs(f) && (w.Use&backend.Multiply != 0 || !plain(f))
	m.half = halfOf(m)
	m.each = int64(w.Rows) * f.Bytes(int64(w.Cols))
	switch {
	case m.panels:
		m.each = cuda.PackedBytes(f, w.Rows, w.Cols)
	case w.Use&backend.Multiply != 0 && !plain(f):
		m.each = up(int64(w.Rows), panel) * f.Bytes(int64(w.Cols)) // for a kernel that does not exist yet
	}
	m.scales = up(int64(max(1, w.Experts))*m.each, align)
	if f.Scaled() {
		m.scaling = w.Scaling
		if m.blas && m.scaling != backend.PerBlock || m.scaling == backend.PerTensor && (len(w.Parts) > maxParts || w.Experts > 0 && len(w.Parts) > 1) {
			m.scaling = backend.PerChannel // for the library, or because a kernel distinguishes too few parts
		}
		s := w
		s.Scaling = m.scaling
		m.count, m.across = int(s.Scales()), blocks(w.Cols)
		if m.blas && m.scaling == backend.PerBlock {
			m.across = cuda.BlocksAcross(w.Cols)
			m.count = m.count / blocks(w.Cols) * m.across
		}
	}
	return m
}

// byLibrary reports whether a weight stored as f is laid out row by row for cuBLASLt. For
// 8-bit floats this needs rounded inputs (RoundInputs) and compute capability 9.0, and the
// weight must not be a table of embeddings. Scales of blocks need whole blocks, except for
// the last output features.
func (l layout) byLibrary(w backend.WeightSpec, f kernels.Format) bool {
	switch {
	case !l.blas || w.Use&backend.Multiply == 0 || w.Experts > 0 || !cuda.PlainRows(f, w.Rows, w.Cols):
		return false
	case plain(f):
		return true
	case !l.blasFP8() || !w.RoundInputs || w.Use&backend.Lookup != 0:
		return false
	case w.Scaling == backend.PerBlock:
		return w.Cols%backend.ScaleBlock == 0 && len(w.Parts) <= maxParts && matrix{WeightSpec: w}.wholeBlocks()
	}
	return w.Scaling != backend.PerGroup
}

// halfOf returns how many rows of a matrix are gates, if its panels bring them and their ups together: what is gated is then whole
// steps of the next product. A transposed tensor is read as a whole and once, in the order of its rows.
func halfOf(m matrix) int {
	transposed := slices.ContainsFunc(m.Parts, func(p backend.Part) bool { return p.Transposed })
	if !m.GateUp || !m.panels || m.Use != backend.Multiply || m.Rows%(2*cuda.StepCols) != 0 || transposed {
		return 0
	}
	return m.Rows / 2
}

// bytes returns the size of the weight with its scales.
func (m matrix) bytes() int64 {
	n := m.scales
	if m.count > 0 {
		n += up(4*int64(m.count), align)
	}
	return n
}

// kernel returns the name of the kernels that read the weight, without the row counts they
// are for.
func (m matrix) kernel() string {
	switch {
	case m.Experts > 0 && !m.panels && m.stored == kernels.F32:
		return "experts_f32"
	case m.blas:
		return cuda.ChoosePlain(m.stored, cuda.DecodeRows+1).Kernel
	case m.Use&backend.Multiply != 0 && m.RoundInputs:
		return "linear_" + m.stored.String() + "_x8"
	case m.Use&backend.Multiply != 0:
		return "linear_" + m.stored.String()
	case m.panels:
		return "embed_packed_" + m.stored.String()
	}
	return "embed_" + m.stored.String()
}

// maxParts is the most parts with separate scales that a kernel supports: the length of the
// arrays in cuda.LinearArgs.
const maxParts = 4

func plain(f kernels.Format) bool {
	return f == kernels.F32 || f == kernels.F16 || f == kernels.BF16
}

func blocks(n int) int { return (n + backend.ScaleBlock - 1) / backend.ScaleBlock }

// args returns the kernel arguments for the matrix at address w.
func (m matrix) args(w cuda.Ptr) cuda.LinearArgs {
	a := cuda.LinearArgs{
		W: w, In: int32(m.Cols), Out: int32(m.Rows), Splits: 1, Parts: 1, ScaleRows: 1, ScaleCols: 1, ScaleAcross: 1,
		ExpertBytes: m.each, ExpertBias: int64(m.Rows), Half: int32(m.half),
	}
	if m.count == 0 {
		return a
	}
	a.Scales, a.ExpertScales = w+cuda.Ptr(m.scales), int64(m.count/max(1, m.Experts))
	switch m.scaling {
	case backend.PerTensor:
		a.ScaleRows, a.ScaleCols = math.MaxInt32, math.MaxInt32
		m.parts(&a, func(backend.Part) int { return 1 })
	case backend.PerChannel:
		a.ScaleCols = math.MaxInt32
	case backend.PerGroup:
		a.ScaleCols, a.ScaleAcross = int32(m.GroupSize), int32(m.Cols/max(1, m.GroupSize))
	case backend.PerBlock:
		a.ScaleRows, a.ScaleCols, a.ScaleAcross = backend.ScaleBlock, backend.ScaleBlock, int32(m.across)
		m.parts(&a, func(p backend.Part) int { return blocks(p.Rows) })
	}
	return a
}

// parts sets the first output feature of each part and the row of scales it begins with.
func (m matrix) parts(a *cuda.LinearArgs, scales func(backend.Part) int) {
	if m.Experts > 0 || len(m.Parts) > maxParts {
		return
	}
	row, scale := 0, 0
	for i, p := range m.Parts {
		a.PartRow[i], a.PartScale[i] = int32(row), int32(scale)
		row, scale = row+p.Rows, scale+scales(p)
	}
	a.Parts = int32(max(1, len(m.Parts)))
}

// elsewhere is the remedy for weights in a format that no kernel reads.
const elsewhere = ": serve it on a cpu, or a file in another format such as q4_k"

// multiplies returns the reason why no kernel multiplies with the matrix, or "".
func (m matrix) multiplies() string {
	switch {
	case !m.panels && !m.blas && m.stored != kernels.F32:
		return "no kernel multiplies " + m.stored.String() + elsewhere
	case m.count > 0 && m.scaling == backend.PerBlock && m.Experts == 0 && len(m.Parts) > maxParts:
		return "kernels support fewer parts with separate scales"
	case m.Experts > 0 && m.scaling == backend.PerBlock && !m.wholeBlocks():
		return "parts of its experts begin within a block of scales"
	case m.scaling == backend.PerGroup && m.GroupSize%cuda.StepCols != 0:
		return fmt.Sprintf("groups of %d inputs that share a scale are no whole steps of %d", m.GroupSize, cuda.StepCols)
	}
	return ""
}

// wholeBlocks reports whether all parts but the last are whole blocks of scales.
func (m matrix) wholeBlocks() bool {
	for i, p := range m.Parts {
		if i+1 < len(m.Parts) && p.Rows%backend.ScaleBlock != 0 {
			return false
		}
	}
	return true
}
