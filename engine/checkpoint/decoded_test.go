package checkpoint

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// TestDecoded compares the numbers of quantized tensors with codes times scales, for each way in which
// 8-bit floats have scales, and for a block format.
func TestDecoded(t *testing.T) {
	const rows, cols = 130, 160
	for _, x := range []struct {
		name   string
		format kernels.Format
		suffix string
		scales []int64
	}{
		{"blocks", kernels.F8E4M3, "_scale_inv", []int64{2, 2}}, {"rows", kernels.F8E4M3, "_scale", []int64{rows, 1}}, {"a vector", kernels.F8E4M3, "_scale", []int64{rows}},
		{"one", kernels.F8E4M3, "_scale", nil}, {"q8_0", kernels.Q8_0, "", nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			list := []TensorInfo{{Name: "w.weight", Shape: []int64{rows, cols}, Format: x.format}}
			if x.suffix != "" {
				list = append(list, TensorInfo{Name: "w.weight" + x.suffix, Shape: x.scales, Format: kernels.F32})
			}
			c, err := Dummy(Config{VocabSize: 16}, list, 1)
			if err != nil {
				t.Fatal(err)
			}
			info, ok := c.Tensor("w.weight" + DecodedSuffix)
			if !ok || info.Format != kernels.F32 || !slices.Equal(info.Shape, []int64{rows, cols}) {
				t.Fatalf("%+v %v", info, ok)
			}
			const first, n = 100, 30
			got := make([]byte, 4*n*cols)
			if err := c.ReadRows(info.Name, first, n, got); err != nil {
				t.Fatal(err)
			}
			want := expandedRows(t, c, x.suffix, first, n, cols)
			for i, w := range want {
				if g := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); g != w {
					t.Fatalf("row %d, column %d: %v, want %v", first+i/cols, i%cols, g, w)
				}
			}
			wantError(t, c.ReadRows(info.Name, rows-1, 2, make([]byte, 8*cols)), "dummy weights", info.Name)
			if err := c.ReadRows(info.Name, 0, 1, nil); err == nil {
				t.Error("no bytes given for a row")
			}
		})
	}
}

// expandedRows returns rows of w.weight, each code times its scale.
func expandedRows(t *testing.T, c *Checkpoint, suffix string, first, n, cols int) []float32 {
	w, _ := c.Tensor("w.weight")
	raw, out := make([]byte, int64(n)*w.RowBytes()), make([]float32, n*cols)
	if err := c.ReadRows("w.weight", first, n, raw); err != nil {
		t.Fatal(err)
	}
	ref.Dequantize(w.Format, raw, out)
	if suffix == "" {
		return out
	}
	s, _ := c.Tensor("w.weight" + suffix)
	raw = make([]byte, s.Bytes)
	if err := c.ReadRows(s.Name, 0, int(s.Rows()), raw); err != nil {
		t.Fatal(err)
	}
	scales := make([]float32, s.Elements())
	ref.Dequantize(s.Format, raw, scales)
	for i := range out {
		row, col := first+i/cols, i%cols
		switch len(scales) {
		case 1:
			out[i] *= scales[0]
		case 4:
			out[i] *= scales[row/128*2+col/128]
		default:
			out[i] *= scales[row]
		}
	}
	return out
}

// TestNotDecoded checks that floats, int8 and 8-bit floats without scales have no decoded numbers.
func TestNotDecoded(t *testing.T) {
	c, err := Dummy(Config{VocabSize: 16}, []TensorInfo{
		{Name: "a.weight", Shape: []int64{4, 32}, Format: kernels.BF16}, {Name: "b.weight", Shape: []int64{4, 32}, Format: kernels.F8E4M3},
		{Name: "c.weight", Shape: []int64{4, 32}, Format: kernels.I8}, {Name: "c.weight_scale", Shape: []int64{4}, Format: kernels.F32},
		{Name: "d.weight", Shape: []int64{4, 32}, Format: kernels.F8E4M3}, {Name: "d.weight_scale", Shape: []int64{3, 5}, Format: kernels.F32},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.weight", "b.weight", "c.weight", "d.weight", "e.weight"} {
		if _, ok := c.Tensor(name + DecodedSuffix); ok {
			t.Errorf("%s has decoded numbers", name)
		}
		wantError(t, c.ReadRows(name+DecodedSuffix, 0, 1, make([]byte, 128)), "dummy weights", name+DecodedSuffix)
	}
}
