package checkpoint

import (
	"math"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// TestF8Codes checks that each number maps to its own code, and that no code is NaN or infinite.
func TestF8Codes(t *testing.T) {
	for f, most := range map[kernels.Format]float64{kernels.F8E4M3: 448, kernels.F8E5M2: 57344} {
		values := finiteF8(f)
		for code := range 128 {
			x := valueF8(f, byte(code))
			if x > most {
				continue
			}
			if got := nearestF8(values, x); got != byte(code) {
				t.Errorf("%v: %v is code %#x, not %#x", f, x, got, code)
			}
			if got := nearestF8(values, -x); x > 0 && got != byte(code)|0x80 {
				t.Errorf("%v: %v is code %#x, not %#x", f, -x, got, code|0x80)
			}
		}
		if got := valueF8(f, nearestF8(values, 1e9)); got != most {
			t.Errorf("%v: the largest number is %v, not %v", f, got, most)
		}
	}
	if valueF8(kernels.F8E4M3, 0x38) != 1 || valueF8(kernels.F8E5M2, 0x3c) != 1 || valueF8(kernels.F8E4M3, 1) != 1.0/512 || valueF8(kernels.F8E5M2, 1) != 1.0/65536 {
		t.Error("1 or the smallest number has another code")
	}
}

// readAll returns all bytes of a tensor.
func readAll(t *testing.T, c *Checkpoint, name string) []byte {
	t.Helper()
	x, _ := c.Tensor(name)
	b := make([]byte, x.Bytes)
	if err := c.ReadRows(name, 0, int(x.Rows()), b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDummyF8 checks that 8-bit floats times their scales have the deviation of other dummy
// weights.
func TestDummyF8(t *testing.T) {
	for _, f := range []kernels.Format{kernels.F8E4M3, kernels.F8E5M2} {
		for _, scale := range []string{"q.weight_scale", "q.weight_scale_inv"} {
			c, err := Dummy(llama1B(t), []TensorInfo{
				{Name: "q.weight", Shape: []int64{256, 512}, Format: f}, {Name: scale, Shape: []int64{256, 1}, Format: kernels.BF16},
			}, 7)
			if err != nil {
				t.Fatal(err)
			}
			scales := make([]float32, 256)
			ref.Dequantize(kernels.BF16, readAll(t, c, scale), scales)
			var sum, squares float64
			for i, code := range readAll(t, c, "q.weight") {
				if code&0x7f == 0x7f || f == kernels.F8E5M2 && code&0x7c == 0x7c {
					t.Fatalf("%v: byte %d is %#x, not finite", f, i, code)
				}
				x := valueF8(f, code&0x7f) * float64(scales[i/512])
				if code > 0x7f {
					x = -x
				}
				sum, squares = sum+x, squares+x*x
			}
			mean, deviation := sum/(256*512), math.Sqrt(squares/(256*512))
			if math.Abs(mean) > 0.002 || deviation < 0.015 || deviation > 0.025 {
				t.Errorf("%v, %s: mean %v, deviation %v, want about 0 and 0.02", f, scale, mean, deviation)
			}
		}
	}
}

// TestDummyMXFP4 checks that exponents bring the deviation of E2M1 numbers near dummyDeviation.
func TestDummyMXFP4(t *testing.T) {
	c, err := Dummy(llama1B(t), []TensorInfo{
		{Name: "experts.down_proj_blocks", Shape: []int64{2, 8, 4, 16}, Format: kernels.U8}, {Name: "experts.down_proj_scales", Shape: []int64{2, 8, 4}, Format: kernels.U8},
	}, 7)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[byte]bool{}
	for _, e := range readAll(t, c, "experts.down_proj_scales") {
		seen[e] = true
	}
	if len(seen) != 2 || !seen[119] || !seen[120] {
		t.Errorf("exponents %v, want 119 and 120", seen)
	}
	halves := map[byte]bool{}
	for _, b := range readAll(t, c, "experts.down_proj_blocks") {
		halves[b&15], halves[b>>4] = true, true
	}
	if len(halves) != 16 {
		t.Errorf("%d of 16 numbers are used", len(halves))
	}
}

// TestScalarScale checks that the scale of a whole tensor has no dimension.
func TestScalarScale(t *testing.T) {
	c, err := Dummy(llama1B(t), []TensorInfo{{Name: "q.weight_scale", Format: kernels.F32}}, 7)
	if err != nil {
		t.Fatal(err)
	}
	var x [1]float32
	ref.Dequantize(kernels.F32, readAll(t, c, "q.weight_scale"), x[:])
	if !(x[0] > 0 && x[0] < 1e-3) {
		t.Errorf("scale %v", x[0])
	}
}

// TestPackedSafetensors reads the dtypes of packed weights and their scales.
func TestPackedSafetensors(t *testing.T) {
	b := stFile(`{"a":{"dtype":"F8_E4M3","shape":[2,4],"data_offsets":[0,8]},"b":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[8,10]},`+
		`"c":{"dtype":"U8","shape":[1,2,2,16],"data_offsets":[10,74]},"d":{"dtype":"F8_E8M0","shape":[1,2,2],"data_offsets":[74,78]}}`, 78)
	list, err := parseSafetensors("m.safetensors", b)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []kernels.Format{kernels.F8E4M3, kernels.F8E5M2, kernels.U8, kernels.U8} {
		if list[i].Format != want {
			t.Errorf("%s is %v, not %v", list[i].Name, list[i].Format, want)
		}
	}
	if list[0].RowBytes() != 4 || list[2].Rows() != 4 || list[2].RowBytes() != 16 {
		t.Errorf("%+v", list)
	}
}
