package cpu

import (
	"slices"
	"strings"

	"vapp.dev/kernels"
)

// The constants of native/linear/panel.h; linear.go checks that they are equal.
const (
	panelRows  = 32  // rows of a weight in a panel
	kBlock     = 128 // inputs unpacked at once
	bfmmlaRows = 8   // rows of x that BFMMLA multiplies at once
	amxRows    = 16  // rows of x in a tile of AMX
	amxK       = 32  // inputs in a tile of AMX
	amxBlock   = 256 // inputs in a block of AMX
	amxPairs   = 8   // BF16 on AMX: the most pairs of row tiles in a chunk
	amxGroup   = 32  // BF16 on AMX: panels whose sums outlive a step of inputs
	decodeRows = 4   // the most rows of x that AVX512-BF16 multiplies without preparing them
	pairRun    = 512 // inputs that AVX512-BF16 unpacks at once

	// BF16 on AMX: the most tiles of inputs, times pairs of row tiles, in a step.
	amxStepTiles = 640

	// pairWorkBytes has tables, pairs, and scales and minima of each group.
	pairWorkBytes = 384 + pairRun*panelRows*2 + 2*pairRun/16*panelRows*4
	scaleK        = 128 // inputs that share a scale of an 8-bit float
	mxK           = 32  // inputs that share an exponent of MXFP4, or a scale of Q8_0 and Q4_0
	nvBytes       = 576 // of 32 inputs of NVFP4 in a panel, with the scales of their two groups
)

// TilesRows is the most rows that read a weight in BF16 once on AMX.
const TilesRows = amxPairs * 2 * amxRows

// The variants of Linear, the simplest of each architecture first.
var linearVariants = []string{"generic", "avx2", "avx512", "avx512bf16", "amx", "neon", "dotprod", "i8mm"}

// SupportedFormats lists the stored formats that a variant's Linear reads; none for an unknown
// variant.
func SupportedFormats(variant string) []kernels.Format {
	if base, ok := strings.CutSuffix(variant, int8Suffix); ok && slices.Contains(int8Variants, base) {
		return slices.Clone(int8Formats)
	}
	if base, ok := strings.CutSuffix(variant, w8a8Suffix); ok && slices.Contains(linearVariants, base) {
		return []kernels.Format{kernels.I8}
	}
	if variant == "amx"+outsideSuffix {
		return slices.Clone(outsideFormats)
	}
	if !slices.Contains(linearVariants, variant) {
		return nil
	}
	return []kernels.Format{kernels.F32, kernels.F16, kernels.BF16, kernels.Q8_0, kernels.Q4_0, kernels.Q4_1,
		kernels.Q4_K, kernels.Q6_K, kernels.F8E4M3, kernels.F8E5M2, kernels.MXFP4, kernels.Q5_0, kernels.Q5_1,
		kernels.Q2_K, kernels.Q3_K, kernels.Q5_K, kernels.IQ4_NL, kernels.I8, kernels.I4,
		kernels.IQ4_XS, kernels.IQ3_XXS, kernels.IQ3_S, kernels.IQ2_XXS, kernels.IQ2_XS, kernels.IQ2_S, kernels.IQ1_S, kernels.IQ1_M,
		kernels.TQ1_0, kernels.TQ2_0, kernels.NVFP4}
}

// Scales lists which elements of a packed 8-bit float, I8 or NVFP4 share a scale, an F32.
type Scales int32

// The kinds of Scales.
const (
	NoScales      Scales = iota
	ChannelScales        // one for each row
	BlockScales          // one for each row and 128 inputs
	PanelScales          // one for each panel of 32 rows and 128 inputs
	GroupScales          // one for each row and 32 inputs, of I8
)

// PanelRows is the number of rows that share PanelScales, ScaleInputs the number of inputs.
const (
	PanelRows   = panelRows
	ScaleInputs = scaleK
)

// Matrix is a weight [Rows,Cols] packed for a variant and stored as Format; 8-bit floats, I8 and
// NVFP4 have Scales. For W8A8 and NVFP4 these are ChannelScales. Other I8 has Cols in whole groups of 32.
type Matrix struct {
	Variant    string
	Format     kernels.Format
	Scales     Scales
	Rows, Cols int
}

// Layout is LinearLayout, including the scales.
func (m Matrix) Layout() (packed int64, kernel string, ok bool) {
	elems, _ := m.Format.Block()
	if m.Rows <= 0 || m.Cols <= 0 || m.Cols%elems != 0 || !slices.Contains(SupportedFormats(m.Variant), m.Format) {
		return 0, "", false
	}
	kernel = "linear." + m.Variant + "." + m.Format.String()
	if !m.scalable() {
		return 0, "", false
	}
	kernel += scaleNames[m.Scales]
	panels := (int64(m.Rows) + panelRows - 1) / panelRows
	return panels * m.panelBytes(), kernel, true
}

var scaleNames = [...]string{"", "+channel", "+block", "+panel", "+group"}

// scalable reports whether the format can have the scales, or NoScales.
func (m Matrix) scalable() bool {
	switch {
	case m.Scales < 0 || int(m.Scales) >= len(scaleNames):
		return false
	case m.w8a8():
		return m.Scales == ChannelScales && m.Cols <= w8Most
	case m.Format == kernels.I8:
		return m.Scales != PanelScales && m.Cols%mxK == 0
	case float8(m.Format):
		return m.Scales != GroupScales
	case m.Format == kernels.NVFP4:
		return m.Scales <= ChannelScales
	}
	return m.Scales == NoScales
}

func float8(f kernels.Format) bool { return f == kernels.F8E4M3 || f == kernels.F8E5M2 }

// panelBytes returns the bytes of one panel: its elements, then its scales.
func (m Matrix) panelBytes() int64 { return m.elements() + roundUp(m.scaleBytes(), 64) }

// elements returns the bytes of a panel's elements; pairs pad odd Cols.
func (m Matrix) elements() int64 {
	cols := int64(m.Cols)
	if m.w8a8() {
		cols = roundUp(cols, w8K)
	}
	if b, ok := blocksOf[m.Format]; ok {
		return b.bytes(cols)
	}
	switch {
	case m.Format == kernels.MXFP4:
		return panelRows * cols / 2
	case m.Format == kernels.NVFP4:
		return roundUp(cols, mxK) / mxK * nvBytes
	case m.Format == kernels.I8:
		return panelRows * cols
	case m.Format == kernels.BF16, float8(m.Format):
		cols += cols % 2
	}
	return panelRows * m.Format.Bytes(cols)
}

func (m Matrix) scaleBytes() int64 {
	switch m.Format {
	case kernels.MXFP4:
		return panelRows * int64(m.Cols) / mxK
	}
	switch m.Scales {
	case ChannelScales:
		return panelRows * 4
	case BlockScales, GroupScales:
		return panelRows * 4 * int64(m.Across())
	case PanelScales:
		return 4 * int64(m.Across())
	}
	return 0
}

// Across returns the number of scales of a row.
func (m Matrix) Across() int {
	switch m.Scales {
	case ChannelScales:
		return 1
	case GroupScales:
		return m.Cols / mxK
	}
	return (m.Cols + scaleK - 1) / scaleK
}

// LinearLayout returns how a weight [rows,cols] stored as f is packed for a variant: its bytes,
// a multiple of 64, and the name of the kernel that reads it. ok is false if the variant has no
// kernel for f or cols is not a whole number of f's blocks. native/linear/panel.h describes the
// layout.
func LinearLayout(variant string, f kernels.Format, rows, cols int) (packed int64, kernel string, ok bool) {
	return Matrix{Variant: variant, Format: f, Rows: rows, Cols: cols}.Layout()
}

// LinearWorkspace returns the bytes that a Linear of at most maxRows rows needs: a workspace
// shared by all threads, and one for each. Both are multiples of 64. LinearLayout must have
// accepted variant and f.
func LinearWorkspace(variant string, f kernels.Format, maxRows, in, out, threads int) (shared, perThread int64) {
	shared, perThread = linearWorkspace(variant, f, maxRows, in, out, threads)
	if slices.Contains(storedFormats, f) {
		perThread += expandedBytes(in)
	}
	return shared, perThread
}

// linearWorkspace is LinearWorkspace for weights that are multiplied as they are packed.
func linearWorkspace(variant string, f kernels.Format, maxRows, in, out, threads int) (shared, perThread int64) {
	if planes := integers(variant, f); planes > 0 {
		return integerWorkspace(planes, maxRows, in)
	}
	if ok, outside := tiled(variant, f); ok {
		return tiledWorkspace(outside, maxRows, in)
	}
	perThread = kBlock * panelRows * 4
	switch {
	case strings.HasSuffix(variant, w8a8Suffix):
		shared, perThread = w8Workspace(variant, maxRows, in)
	case variant == "amx" && f == kernels.BF16:
		tiles := (int64(maxRows) + amxRows - 1) / amxRows
		return tiles * amxRows * roundUp(int64(in), amxK) * 2, amxBF16Work(tiles, in, out, threads)
	case asPairs(variant, f):
		shared = roundUp(roundUp(int64(maxRows), tileRows(variant))*pairBytes(in), 64)
		perThread = pairWorkBytes + decodeRows*pairBytes(in)
	case asBFMMLA(variant, f):
		shared = roundUp(int64(maxRows), bfmmlaRows) * bfmmlaBytes(in)
		perThread += roundUp(2*bfmmlaBytes(in), 64)
	case variant != "generic" && maxRows > 1:
		tile := tileRows(variant)
		shared = roundUp(roundUp(int64(maxRows), tile)*int64(in)*4, 64)
	}
	return shared, perThread
}

// amxBF16Work returns the bytes that a thread needs to multiply BF16 on AMX: a padded tile of
// inputs and the sums of a chunk's pairs of row tiles, for each panel whose sums outlive a step.
func amxBF16Work(tiles int64, in, out, threads int) int64 {
	pairs := (tiles + 1) / 2
	chunks, most, panels := (pairs+amxPairs-1)/amxPairs, min(pairs, amxPairs), int64(1)
	if inputs := (int64(in) + amxK - 1) / amxK; most > 1 && inputs > amxStepTiles/most {
		all := chunks * ((int64(out) + panelRows - 1) / panelRows)
		panels = min(amxGroup, (all+int64(threads)-1)/int64(threads))
	}
	return amxK*panelRows*2 + most*panels*2*amxRows*panelRows*4
}

// asPairs reports whether a variant multiplies weights of f as pairs of bf16.
func asPairs(variant string, f kernels.Format) bool {
	return variant == "avx512bf16" && f != kernels.F32 && f != kernels.F16 && integers(variant, f) == 0
}

// asBFMMLA reports whether a variant multiplies weights of f with BFMMLA.
func asBFMMLA(variant string, f kernels.Format) bool {
	return variant == "i8mm" && f == kernels.BF16
}

// bfmmlaBytes returns the bytes of a row of x for BFMMLA.
func bfmmlaBytes(in int) int64 { return 2 * roundUp(int64(in), 4) }

// pairBytes returns the bytes of a row of x as pairs of bf16, with its sums of 16.
func pairBytes(in int) int64 { return roundUp(int64(in), 32) / 16 * (32 + 4) }

// tileRows returns the rows of x that a variant with vectors multiplies at once.
func tileRows(variant string) int64 {
	switch variant {
	case "avx2", "neon", "dotprod", "i8mm":
		return 6
	}
	return 12
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
