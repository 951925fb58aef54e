//go:build cgo && linux

package cpu

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// storeScales stores the scales of n rows whose format is not converted. The first is row of
// its part and row at of the matrix.
func (k *packer) storeScales(row, at int, b []byte, n int) error {
	if err := finite(k.to, b); err != nil {
		return err
	}
	if k.matrix.Scales == kcpu.NoScales {
		return nil
	}
	for i := range n {
		scales, err := k.scales.row(row + i)
		if err != nil {
			return err
		}
		k.matrix.PackScales(k.out, at+i, k.spread(scales))
	}
	return nil
}

// spread repeats each scale if its group spans several groups of the kernel.
func (k *packer) spread(scales []float32) []float32 {
	if k.spec.Scaling != backend.PerGroup {
		return scales
	}
	n, of := k.matrix.Across(), len(scales)
	k.repeated = grow(k.repeated, n)
	for i := range n {
		k.repeated[i] = scales[i*of/n]
	}
	return k.repeated
}

// finite rejects values that kernels do not support: NaNs of E4M3, of MXFP4's exponents and of NVFP4's
// scales.
func finite(f kernels.Format, b []byte) error {
	switch f {
	case kernels.F8E4M3:
		i := 0
		for ; i+8 <= len(b); i += 8 {
			if (binary.LittleEndian.Uint64(b[i:])&0x7f7f7f7f7f7f7f7f+0x0101010101010101)&0x8080808080808080 != 0 {
				return errNaN
			}
		}
		for ; i < len(b); i++ {
			if b[i]&0x7f == 0x7f {
				return errNaN
			}
		}
	case kernels.NVFP4:
		for i := 8; i < len(b); i += 9 {
			if b[i]&0x7f == 0x7f {
				return errNaN
			}
		}
	case kernels.MXFP4:
		for i := 16; i < len(b); i += 17 {
			if b[i] == 0xff {
				return errNaN
			}
		}
	}
	return nil
}

var errNaN = fmt.Errorf("it has a NaN or an infinity: the checkpoint is damaged")

// widen returns n rows of a part in float32, multiplied by their scales.
func (k *packer) widen(p backend.Part, row int, b []byte, n int) ([]float32, error) {
	cols := k.spec.Cols
	k.wide = grow(k.wide, n*cols)
	kcpu.Dequantize(p.Format, b, k.wide)
	if p.Scale == "" || !p.Format.Scaled() {
		return k.wide, nil
	}
	for i := range n {
		scales, err := k.scales.row(row + i)
		if err != nil {
			return nil, err
		}
		for c, line := 0, k.wide[i*cols:(i+1)*cols]; c < cols; c++ {
			line[c] *= scales[c/k.scales.shared()]
		}
	}
	return k.wide, nil
}

// quantize returns n rows in F8E4M3, each with its own scale.
func (k *packer) quantize(p backend.Part, row, at int, b []byte, n int) ([]byte, error) {
	x, err := k.widen(p, row, b, n)
	if err != nil {
		return nil, err
	}
	cols := k.spec.Cols
	k.narrow = grow(k.narrow, n*cols)
	for i := range n {
		scale, ok := kcpu.QuantizeE4M3(x[i*cols:(i+1)*cols], k.narrow[i*cols:(i+1)*cols])
		if !ok {
			return nil, fmt.Errorf("row %d: %w", row+i, errNaN)
		}
		k.matrix.PackScales(k.out, at+i, []float32{scale})
	}
	return k.narrow, nil
}

// convert returns n rows in the weight's plain format: BF16 if no kernel multiplies the
// stored format, or the profile's target.
func (k *packer) convert(p backend.Part, row int, b []byte, n int) ([]byte, error) {
	x, err := k.widen(p, row, b, n)
	if err != nil {
		return nil, err
	}
	if k.to == kernels.F32 {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)), nil
	}
	k.narrow = grow(k.narrow, 2*len(x))
	if k.to == kernels.F16 {
		kcpu.RoundF16(x, k.narrow)
	} else {
		kcpu.RoundBF16(x, k.narrow)
	}
	return k.narrow, nil
}

// scaleReader reads the scales of a part's rows, one after the other, and caches one row of
// scales.
type scaleReader struct {
	part    backend.Part
	scaling backend.Scaling
	group   int // columns, if scaling is PerGroup
	expert  int
	cols    int
	src     backend.RowReader
	at      int // index of the row of scales in values, plus 1
	values  []float32
}

// shared returns how many columns share a scale.
func (s *scaleReader) shared() int { return s.scaling.Columns(s.cols, s.group) }

// row returns the scales of a row of the part; ones if the part has none.
func (s *scaleReader) row(r int) ([]float32, error) {
	p := s.part
	n, at := (s.cols+s.shared()-1)/s.shared(), s.expert
	if s.values == nil {
		s.values = make([]float32, n)
	}
	if p.Scale == "" {
		for i := range s.values {
			s.values[i] = 1
		}
		return s.values, nil
	}
	switch s.scaling {
	case backend.PerChannel, backend.PerGroup:
		at = p.Row0 + s.expert*p.Stride + r
	case backend.PerBlock:
		at = (p.Row0+r)/backend.ScaleBlock + s.expert*((p.Stride+backend.ScaleBlock-1)/backend.ScaleBlock)
	}
	if s.at == at+1 {
		return s.values, nil
	}
	raw := make([]byte, p.ScaleFormat.Bytes(int64(n)))
	if err := backend.ReadScales(s.src, p, s.scaling, s.group, at, raw); err != nil {
		return nil, err
	}
	kcpu.Dequantize(p.ScaleFormat, raw, s.values)
	for _, v := range s.values {
		if v-v != 0 {
			return nil, fmt.Errorf("scales in %s: %w", p.Scale, errNaN)
		}
	}
	s.at = at + 1
	return s.values, nil
}
