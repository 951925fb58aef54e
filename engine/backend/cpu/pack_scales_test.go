//go:build cgo && linux

package cpu

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// TestFinite: finite finds a NaN at any place and accepts all other values.
func TestFinite(t *testing.T) {
	for f, bad := range map[kernels.Format][]byte{kernels.F8E4M3: {0x7f, 0xff}, kernels.MXFP4: {0xff}, kernels.NVFP4: {0x7f, 0xff}} {
		_, size := f.Block()
		b := make([]byte, 17*9)
		for i := range b {
			b[i] = byte(i*5) | 0x80
			if b[i]&0x7f == 0x7f {
				b[i] = 0x7e
			}
		}
		if err := finite(f, b); err != nil {
			t.Errorf("%v: %v", f, err)
		}
		for i := range b {
			old := b[i]
			for _, v := range bad {
				b[i] = v
				if err := finite(f, b); (err != nil) != (i%size == size-1) {
					t.Errorf("%v: %#x at %d: %v", f, v, i, err)
				}
			}
			b[i] = old
		}
	}
}

// TestScaleRows checks which scale a row has, and that scales that are NaN or infinite are
// rejected.
func TestScaleRows(t *testing.T) {
	raw := make(backend.MatrixRows, 0, 64)
	for i := range 16 {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i)))
	}
	for _, c := range []struct {
		scaling              backend.Scaling
		cols                 int
		row0, stride, expert int
		row                  int
		want                 []float32
	}{
		{backend.PerTensor, 100, 0, 0, 3, 7, []float32{3}},
		{backend.PerChannel, 100, 2, 5, 1, 4, []float32{11}},
		{backend.PerBlock, 200, 128, 0, 0, 127, []float32{2, 3}},
		{backend.PerBlock, 200, 128, 0, 0, 128, []float32{4, 5}},
		{backend.PerBlock, 129, 0, 130, 2, 129, []float32{10, 11}}, // each expert begins a block
	} {
		s := scaleReader{
			part: backend.Part{Row0: c.row0, Stride: c.stride, Scale: "s", ScaleFormat: kernels.F32}, scaling: c.scaling, expert: c.expert, cols: c.cols,
			src: raw,
		}
		for range 2 { // read, then cached
			got, err := s.row(c.row)
			if err != nil || len(got) != len(c.want) || got[0] != c.want[0] || got[len(got)-1] != c.want[len(got)-1] {
				t.Errorf("%v: row %d of expert %d: %v, %v, want %v", c.scaling, c.row, c.expert, got, err, c.want)
			}
		}
	}
	binary.LittleEndian.PutUint32(raw, math.Float32bits(float32(math.Inf(1))))
	s := scaleReader{part: backend.Part{Scale: "w_scale", ScaleFormat: kernels.F32}, scaling: backend.PerTensor, cols: 8, src: raw}
	if _, err := s.row(0); !errors.Is(err, errNaN) || !strings.Contains(err.Error(), "w_scale") {
		t.Errorf("an infinite scale: %v", err)
	}
}
