//go:build cgo

package cpu

import (
	"fmt"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cpu/native"
)

// Numbers that C and Go share: a difference is a compile error.
var (
	_ [native.F32]struct{}  = [kernels.F32]struct{}{}
	_ [native.F16]struct{}  = [kernels.F16]struct{}{}
	_ [native.BF16]struct{} = [kernels.BF16]struct{}{}
	_ [native.Q8_0]struct{} = [kernels.Q8_0]struct{}{}
	_ [native.Q4_0]struct{} = [kernels.Q4_0]struct{}{}
	_ [native.Q4_1]struct{} = [kernels.Q4_1]struct{}{}
	_ [native.Q4_K]struct{} = [kernels.Q4_K]struct{}{}
	_ [native.Q6_K]struct{} = [kernels.Q6_K]struct{}{}
	_ [native.Q5_0]struct{} = [kernels.Q5_0]struct{}{}
	_ [native.Q5_1]struct{} = [kernels.Q5_1]struct{}{}
	_ [native.Q2_K]struct{} = [kernels.Q2_K]struct{}{}
	_ [native.Q3_K]struct{} = [kernels.Q3_K]struct{}{}
	_ [native.Q5_K]struct{} = [kernels.Q5_K]struct{}{}

	_ [native.IQ4_NL]struct{}  = [kernels.IQ4_NL]struct{}{}
	_ [native.I8]struct{}      = [kernels.I8]struct{}{}
	_ [native.I4]struct{}      = [kernels.I4]struct{}{}
	_ [native.IQ4_XS]struct{}  = [kernels.IQ4_XS]struct{}{}
	_ [native.IQ3_XXS]struct{} = [kernels.IQ3_XXS]struct{}{}
	_ [native.IQ3_S]struct{}   = [kernels.IQ3_S]struct{}{}
	_ [native.IQ2_XXS]struct{} = [kernels.IQ2_XXS]struct{}{}
	_ [native.IQ2_XS]struct{}  = [kernels.IQ2_XS]struct{}{}
	_ [native.IQ2_S]struct{}   = [kernels.IQ2_S]struct{}{}
	_ [native.IQ1_S]struct{}   = [kernels.IQ1_S]struct{}{}
	_ [native.IQ1_M]struct{}   = [kernels.IQ1_M]struct{}{}
	_ [native.TQ1_0]struct{}   = [kernels.TQ1_0]struct{}{}
	_ [native.TQ2_0]struct{}   = [kernels.TQ2_0]struct{}{}
	_ [native.NVFP4]struct{}   = [kernels.NVFP4]struct{}{}

	_ [native.F8E4M3]struct{} = [kernels.F8E4M3]struct{}{}
	_ [native.F8E5M2]struct{} = [kernels.F8E5M2]struct{}{}
	_ [native.MXFP4]struct{}  = [kernels.MXFP4]struct{}{}

	_ [native.ChannelScales]struct{} = [ChannelScales]struct{}{}
	_ [native.BlockScales]struct{}   = [BlockScales]struct{}{}
	_ [native.PanelScales]struct{}   = [PanelScales]struct{}{}
	_ [native.GroupScales]struct{}   = [GroupScales]struct{}{}
	_ [native.ScaleK]struct{}        = [scaleK]struct{}{}
	_ [native.MXK]struct{}           = [mxK]struct{}{}
	_ [native.NVBytes]struct{}       = [nvBytes]struct{}{}

	_ [native.Panel]struct{}                 = [panelRows]struct{}{}
	_ [native.KBlock]struct{}                = [kBlock]struct{}{}
	_ [native.TileRows]struct{}              = [amxRows]struct{}{}
	_ [native.TileK]struct{}                 = [amxK]struct{}{}
	_ [native.BF16Pairs]struct{}             = [amxPairs]struct{}{}
	_ [native.BF16StepTiles]struct{}         = [amxStepTiles]struct{}{}
	_ [native.BF16Group]struct{}             = [amxGroup]struct{}{}
	_ [native.DecodeRows]struct{}            = [decodeRows]struct{}{}
	_ [native.PairWorkBytes]struct{}         = [pairWorkBytes]struct{}{}
	_ [native.TilesK * native.TileK]struct{} = [amxBlock]struct{}{}

	_ [native.Group]struct{}     = [int8Group]struct{}{}
	_ [native.Int8Tile]struct{}  = [int8Tile]struct{}{}
	_ [native.XDwords]struct{}   = [int8Words]struct{}{}
	_ [native.Int8Block]struct{} = [int8Block]struct{}{}

	_ [native.W8K]struct{}    = [w8K]struct{}{}
	_ [native.W8Tail]struct{} = [w8Tail]struct{}{}
	_ [native.W8Most]struct{} = [w8Most]struct{}{}

	_ [native.QuantWorkBytes]struct{} = [quantWorkBytes]struct{}{}
	_ [native.QuantChunk]struct{}     = [quantChunk]struct{}{}
	_ [native.QuantSpan]struct{}      = [quantSpan]struct{}{}
	_ [native.QuantPanels]struct{}    = [quantPanels]struct{}{}
	_ [native.QuantFew]struct{}       = [quantFew]struct{}{}
	_ [native.BFMMLATile]struct{}     = [bfmmlaRows]struct{}{}
	_ [native.StoredWork]struct{}     = [storedWork]struct{}{}
	_ [native.StoredMost]struct{}     = [storedMost]struct{}{}
)

// SoftAMX is amx on tiles in memory, for tests on machines without tiles.
const SoftAMX = "amx-soft"

// AVX2Pairs is avx2 with int8 activations without AVX-VNNI, for tests on machines that have it.
const AVX2Pairs = "avx2-pairs"

var variantNumbers = map[string]int{
	"generic":    native.Generic,
	"avx2":       native.AVX2,
	"avx512":     native.AVX512,
	"avx512bf16": native.AVX512BF16,
	"amx":        native.AMX,
	SoftAMX:      native.AMXSoft,
	"neon":       native.NEON,
	"dotprod":    native.DotProd,
	"i8mm":       native.I8MM,

	"neon" + int8Suffix:    native.Int8 + native.NEON,
	"dotprod" + int8Suffix: native.Int8 + native.DotProd,
	"i8mm" + int8Suffix:    native.Int8 + native.I8MM,
	"neon" + w8a8Suffix:    native.W8A8 + native.NEON,
	"dotprod" + w8a8Suffix: native.W8A8 + native.DotProd,
	"i8mm" + w8a8Suffix:    native.W8A8 + native.I8MM,

	"amx" + outsideSuffix:   native.AMXOutside,
	SoftAMX + outsideSuffix: native.AMXOutsideSoft,

	"generic" + int8Suffix:    native.Int8 + native.Generic,
	"avx2" + int8Suffix:       native.Int8 + native.AVX2,
	AVX2Pairs + int8Suffix:    native.Int8 + native.AVX2Pairs,
	"avx512" + int8Suffix:     native.Int8 + native.AVX512,
	"avx512bf16" + int8Suffix: native.Int8 + native.AVX512BF16,
	SoftAMX + w8a8Suffix:      native.W8A8 + native.AMXSoft,

	"generic" + w8a8Suffix:    native.W8A8 + native.Generic,
	"avx2" + w8a8Suffix:       native.W8A8 + native.AVX2,
	"avx512" + w8a8Suffix:     native.W8A8 + native.AVX512,
	"avx512bf16" + w8a8Suffix: native.W8A8 + native.AVX512BF16,
	"amx" + w8a8Suffix:        native.W8A8 + native.AMX,
}

// LinearKernel is Linear of one variant for one stored format.
type LinearKernel struct {
	c       native.Linear
	variant string
	format  kernels.Format
	scales  Scales
}

// LinearFor returns the kernel of a variant. It returns false if this build has none, or if the
// system does not let this process run it. The CPU must have the variant's instructions.
func LinearFor(variant string, f kernels.Format) (LinearKernel, bool) {
	n, ok := variantNumbers[variant]
	if !ok {
		return LinearKernel{}, false
	}
	k, ok := native.LinearFor(n, int(f))
	return LinearKernel{c: k, variant: variant, format: f}, ok
}

// Kernel returns the kernel that multiplies with m; false if this build has none.
func (m Matrix) Kernel() (LinearKernel, bool) {
	k, ok := LinearFor(m.Variant, m.Format)
	k.scales = m.Scales
	return k, ok
}

// Code returns the kernel's stored format and scales, for Linear.Format and Embed.Format.
func (k LinearKernel) Code() int32 { return int32(k.format) + native.Scales*int32(k.scales) }

// matrix returns a weight [rows,cols] of the kernel.
func (k LinearKernel) matrix(rows, cols int) Matrix {
	return Matrix{k.variant, k.format, k.scales, rows, cols}
}

// softTiles returns the AMX kernel on tiles in memory, for tests on a machine that has its
// other instructions. Workspaces are those of "amx".
func softTiles(f kernels.Format) (LinearKernel, bool) {
	k, ok := native.LinearFor(native.AMXSoft, int(f))
	return LinearKernel{c: k, variant: "amx", format: f}, ok
}

// softOutside is softTiles for the second definition.
func softOutside(f kernels.Format) (LinearKernel, bool) {
	k, ok := native.LinearFor(native.AMXOutsideSoft, int(f))
	return LinearKernel{c: k, variant: "amx" + outsideSuffix, format: f}, ok
}

// LinearArgs is the operands of one Linear. Shared and Work have at least the bytes of
// LinearWorkspace.
type LinearArgs = native.LinearArgs

// Prepare does part of parts of the preparation. All parts must finish before the first Run.
func (k LinearKernel) Prepare(a *LinearArgs, part, parts int) {
	if a.Rows > 0 {
		k.check(a, part, parts)
		k.c.Prepare(a, k.Code(), part, parts)
	}
}

// Run computes part of parts of Y.
func (k LinearKernel) Run(a *LinearArgs, part, parts int) {
	if a.Rows > 0 {
		k.check(a, part, parts)
		k.c.Run(a, k.Code(), part, parts)
	}
}

// Row unpacks row r of a packed weight [out,in] to dst [in].
func (k LinearKernel) Row(w []byte, in, out, r int, dst []float32) {
	if packed, _, ok := k.matrix(out, in).Layout(); !ok || int64(len(w)) < packed || r < 0 || r >= out || len(dst) < in {
		panic(fmt.Sprintf("cpu: row %d of [%d,%d] %v in %d bytes to %d floats", r, out, in, k.format, len(w), len(dst)))
	}
	k.c.Row(w, k.Code(), in, out, r, dst)
}

// check panics if the slices are too short for the shapes.
func (k LinearKernel) check(a *LinearArgs, part, parts int) {
	packed, _, ok := k.matrix(a.Out, a.In).Layout()
	shared, work := LinearWorkspace(k.variant, k.format, a.Rows, a.In, a.Out, parts)
	switch {
	case !ok, int64(len(a.W)) < packed, a.Rows < 0, part < 0, part >= parts:
	case len(a.Bias) > 0 && len(a.Bias) < a.Out, a.LdX < a.In, a.LdY < a.Out:
	case len(a.X) < (a.Rows-1)*a.LdX+a.In, len(a.Y) < (a.Rows-1)*a.LdY+a.Out:
	case int64(len(a.Shared)) < shared, int64(len(a.Work)) < work:
	default:
		return
	}
	panic(fmt.Sprintf("cpu: Linear %s %v [%d,%d]·[%d,%d]ᵀ part %d of %d: a slice is too short", k.variant, k.format,
		a.Rows, a.In, a.Out, a.In, part, parts))
}
