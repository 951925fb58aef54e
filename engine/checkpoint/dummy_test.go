package checkpoint

import (
	"bytes"
	"math"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

func llama1B(t testing.TB) Config {
	t.Helper()
	cfg, err := ParseConfig("config.json", readConfig(t, "llama-3.2-1b"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestDummyRows checks that a row does not depend on the rows read with it, and that rows, tensors
// and seeds differ.
func TestDummyRows(t *testing.T) {
	for _, f := range append([]kernels.Format{kernels.F32, kernels.F16, kernels.BF16}, blockFormats...) {
		layout := []TensorInfo{{Name: "a.weight", Shape: []int64{16, 512}, Format: f}, {Name: "b.weight", Shape: []int64{16, 512}, Format: f}}
		read := func(seed uint64, name string, row0, rows int) []byte {
			t.Helper()
			c, err := Dummy(llama1B(t), layout, seed)
			if err != nil {
				t.Fatal(err)
			}
			x, _ := c.Tensor(name)
			out := make([]byte, int64(rows)*x.RowBytes())
			if err := c.ReadRows(name, row0, rows, out); err != nil {
				t.Fatal(err)
			}
			return out
		}
		all := read(1, "a.weight", 0, 16)
		size := len(all) / 16
		if !bytes.Equal(all[3*size:5*size], read(1, "a.weight", 3, 2)) {
			t.Errorf("%v: rows 3 and 4 depend on what is read with them", f)
		}
		if bytes.Equal(all[:size], all[size:2*size]) || bytes.Equal(all, read(2, "a.weight", 0, 16)) || bytes.Equal(all, read(1, "b.weight", 0, 16)) {
			t.Errorf("%v: equal rows, seeds or tensors", f)
		}
		values := make([]float32, 16*512)
		for r := range 16 {
			ref.Dequantize(f, all[r*size:(r+1)*size], values[r*512:(r+1)*512])
		}
		var sum, squares float64
		for _, x := range values {
			sum, squares = sum+float64(x), squares+float64(x)*float64(x)
		}
		mean, deviation := sum/float64(len(values)), math.Sqrt(squares/float64(len(values)))
		if f == kernels.NVFP4 { // its scale of the matrix is another tensor
			mean, deviation = mean*scaleOfF8, deviation*scaleOfF8
		}
		if math.Abs(mean) > 0.002 || deviation < 0.015 || deviation > 0.025 {
			t.Errorf("%v: mean %v, deviation %v, want about 0 and 0.02", f, mean, deviation)
		}
	}
}

// TestDummyMade checks that Dummy gives the numbers that ReadRows reads, also for rows whose length
// is not a multiple of 8, and that it reports false for scales and block formats.
func TestDummyMade(t *testing.T) {
	var layout []TensorInfo
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16, kernels.F8E4M3, kernels.F8E5M2, kernels.I8, kernels.U8} {
		layout = append(layout, TensorInfo{Name: f.String() + ".weight", Shape: []int64{3, 2, 21}, Format: f})
	}
	layout = append(layout, TensorInfo{Name: "experts_scales", Shape: []int64{4, 19}, Format: kernels.U8})
	made := len(layout)
	layout = append(layout,
		TensorInfo{Name: "a.norm.weight", Shape: []int64{8}, Format: kernels.BF16}, TensorInfo{Name: "a.weight_scale", Shape: []int64{8, 1}, Format: kernels.F32},
		TensorInfo{Name: "a.weight_scale_inv", Shape: []int64{2, 2}, Format: kernels.BF16}, TensorInfo{Name: "q", Shape: []int64{2, 32}, Format: kernels.Q8_0})
	c, err := Dummy(llama1B(t), layout, 9)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range layout {
		m, ok := c.Dummy(x.Name)
		if ok != (i < made) {
			t.Errorf("%s: made %v", x.Name, ok)
		}
		if !ok {
			continue
		}
		x, _ = c.Tensor(x.Name)
		want, got := make([]byte, x.Bytes), make([]byte, x.Bytes)
		if err := c.ReadRows(x.Name, 0, int(x.Rows()), want); err != nil {
			t.Fatal(err)
		}
		for r := range x.Rows() {
			m.Row(uint64(r), got[r*x.RowBytes():(r+1)*x.RowBytes()])
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %x, read as %x", x.Name, got, want)
		}
	}
	if _, ok := c.Dummy("none"); ok {
		t.Error("a tensor that there is not")
	}
}

func TestDummyNorm(t *testing.T) {
	c, err := Dummy(llama1B(t), []TensorInfo{{Name: "model.norm.weight", Shape: []int64{64}, Format: kernels.BF16}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 128)
	if err := c.ReadRows("model.norm.weight", 0, 1, got); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{0x80, 0x3f}, 64)) {
		t.Errorf("norm %x, %v", got, err)
	}
}

func TestBadDummy(t *testing.T) {
	cfg := llama1B(t)
	for name, x := range map[string]TensorInfo{
		"shape":  {Name: "x", Shape: []int64{1 << 40, 1 << 40}, Format: kernels.F32},
		"empty":  {Name: "x", Shape: []int64{0}, Format: kernels.F32},
		"block":  {Name: "x", Shape: []int64{31}, Format: kernels.Q8_0},
		"format": {Name: "x", Shape: []int64{32}, Format: kernels.U32},
	} {
		_, err := Dummy(cfg, []TensorInfo{x}, 1)
		if wantError(t, err, "dummy weights", "x"); err == nil {
			t.Error(name)
		}
	}
	c, err := Dummy(cfg, []TensorInfo{{Name: "x", Shape: []int64{4, 8}, Format: kernels.F32}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range [][3]int{{-1, 1, 32}, {0, 5, 160}, {4, 1, 32}, {0, 1, 31}, {0, -1, 0}, {math.MaxInt, 1, 32}, {1, math.MaxInt, 32}} {
		wantError(t, c.ReadRows("x", r[0], r[1], make([]byte, r[2])), "dummy weights", "x")
	}
	wantError(t, c.ReadRows("y", 0, 1, nil), "dummy weights", "y")
	_, err = c.View("x")
	wantError(t, err, "dummy weights", "x")
	for _, vocab := range []int{0, 255, 257, maxVocab + 1} {
		cfg.VocabSize = vocab
		_, err := SyntheticTokenizer(cfg)
		wantError(t, err, "config", "vocab_size")
	}
	cfg.VocabSize = 1000 // below the ids of BOS and EOS
	_, err = SyntheticTokenizer(cfg)
	wantError(t, err, "config", "eos_token_id")
}

// BenchmarkDummy fills rows of Llama 3.2 1B's MLP; that model has 2.47 GB in
// bf16, or 603,000 rows of 2048 in all.
func BenchmarkDummy(b *testing.B) {
	for _, f := range []kernels.Format{kernels.BF16, kernels.F32, kernels.Q8_0, kernels.Q4_1, kernels.Q4_K, kernels.Q6_K} {
		b.Run(f.String(), func(b *testing.B) {
			const rows = 256
			c, err := Dummy(llama1B(b), []TensorInfo{{Name: "x", Shape: []int64{rows, 2048}, Format: f}}, 1)
			if err != nil {
				b.Fatal(err)
			}
			x, _ := c.Tensor("x")
			dst := make([]byte, x.Bytes)
			b.SetBytes(x.Bytes)
			for b.Loop() {
				if err := c.ReadRows("x", 0, rows, dst); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
