package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

const groupedDir = "testdata/grouped"

// groupedLayouts lists the recorded layouts (grouped.py of package models).
var groupedLayouts = []string{"gptq-2", "gptq-3", "gptq-4", "gptq-4-rows", "gptq-4-order", "gptq-8", "awq", "int4", "int4-rows", "int4-order", "nvfp4", "nvfp4-modelopt"}

// TestGrouped compares joined weights with the values that the recorder gave their codes, bit for
// bit, read as a whole and by rows.
func TestGrouped(t *testing.T) {
	found, err := os.ReadDir(groupedDir)
	if err != nil || len(found) != len(groupedLayouts) {
		t.Fatalf("%d layouts (%v), %d are listed here", len(found), err, len(groupedLayouts))
	}
	for _, name := range groupedLayouts {
		t.Run(name, func(t *testing.T) {
			c, err := Open(filepath.Join(groupedDir, name))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			g, ok, err := GroupingOf(c.Config().QuantizationConfig)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			order := identity(128)
			if strings.HasSuffix(name, "-order") != g.Ordered {
				t.Errorf("ordered is %v", g.Ordered)
			}
			want := []string{"m.weight", "values"}
			if g.Ordered {
				want = []string{"m.weight", "m.weight.order", "values"}
				order = make([]float32, 128)
				ref.Dequantize(kernels.F32, readAll(t, c, "m.weight.order"), order)
				if slices.Equal(order, identity(128)) {
					t.Error("the order is that of the checkpoint")
				}
			}
			var names []string
			for _, x := range c.Tensors() {
				names = append(names, x.Name)
			}
			slices.Sort(names)
			if g.Float {
				want = []string{"m.weight", "m.weight_global_scale", "values"}
			}
			if !slices.Equal(names, want) {
				t.Errorf("tensors %v, want %v", names, want)
			}
			w, _ := c.Tensor("m.weight")
			wantFormat := kernels.I4
			switch name {
			case "gptq-8":
				wantFormat = kernels.Q8_0
			case "nvfp4", "nvfp4-modelopt":
				wantFormat = kernels.NVFP4
			}
			if w.Format != wantFormat || !slices.Equal(w.Shape, []int64{32, 128}) || w.Bytes != wantFormat.Bytes(32*128) {
				t.Fatalf("%+v", w)
			}
			whole := readAll(t, c, "m.weight")
			values, got := make([]float32, 32*128), make([]float32, 32*128)
			ref.Dequantize(kernels.F32, readAll(t, c, "values"), values)
			ref.Dequantize(w.Format, whole, got)
			global, within := []float32{1}, 0.0
			if g.Float {
				ref.Dequantize(kernels.F32, readAll(t, c, "m.weight_global_scale"), global)
				within = 0x1p-22 // the recorder rounds the product or quotient of the two scales first
			}
			for i := range values {
				got[i] *= global[0]
				if want := float64(values[i/128*128+int(order[i%128])]); math.Abs(float64(got[i])-want) > within*math.Abs(want) {
					t.Fatalf("row %d input %d is %v, want %v", i/128, i%128, got[i], want)
				}
			}
			decoded := make([]float32, 6*128)
			b := make([]byte, 4*len(decoded))
			if err := c.ReadRows("m.weight"+DecodedSuffix, 3, 6, b); err != nil {
				t.Fatal(err)
			}
			if ref.Dequantize(kernels.F32, b, decoded); !slices.Equal(decoded, got[3*128:9*128]) {
				t.Error("decoded rows differ")
			}
			for _, run := range [][2]int{{0, 1}, {3, 9}, {8, 24}, {31, 32}} {
				part := make([]byte, int64(run[1]-run[0])*w.RowBytes())
				if err := c.ReadRows("m.weight", run[0], run[1]-run[0], part); err != nil || string(part) != string(whole[int64(run[0])*w.RowBytes():][:len(part)]) {
					t.Errorf("rows %v differ from the whole: %v", run, err)
				}
			}
			for _, name := range names {
				if err := c.Release(name); err != nil {
					t.Error(err)
				}
			}
			if again := readAll(t, c, "m.weight"); string(again) != string(whole) {
				t.Error("rows differ after Release")
			}
			if _, err := c.View("m.weight"); err == nil {
				t.Error("a joined tensor has a view")
			}
			if _, err := c.Fingerprint(); err != nil {
				t.Error(err)
			}
		})
	}
}

func identity(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i)
	}
	return x
}

// changed copies a layout to a new directory with edits of the JSON texts of its config and of its
// safetensors header, which keeps its length, and of its bytes.
func changed(t testing.TB, name string, config, header [2]string, edit func(data []byte, offset func(tensor string) int)) string {
	t.Helper()
	dir := t.TempDir()
	read := func(file string) []byte {
		b, err := os.ReadFile(filepath.Join(groupedDir, name, file))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	replace := func(b []byte, pair [2]string) []byte {
		if !strings.Contains(string(b), pair[0]) {
			t.Fatalf("%s has no %s", name, pair[0])
		}
		return []byte(strings.Replace(string(b), pair[0], pair[1], 1))
	}
	weights := read("model.safetensors")
	n := 8 + int(binary.LittleEndian.Uint64(weights))
	head := replace(weights[8:n], header)
	for len(head) < n-8 {
		head = append(head, ' ')
	}
	var tensors map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	var named map[string]json.RawMessage
	if json.Unmarshal(head, &named) == nil {
		delete(named, "__metadata__")
		b, _ := json.Marshal(named)
		if err := json.Unmarshal(b, &tensors); err != nil {
			t.Fatal(err)
		}
	}
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	data := slices.Clone(weights[n:])
	if edit != nil {
		edit(data, func(tensor string) int { return tensors[tensor].Offsets[0] })
	}
	for file, b := range map[string][]byte{"config.json": replace(read("config.json"), config), "model.safetensors": append(out, data...)} {
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var same = [2]string{"", ""}

// TestGroupedRefusals checks that tensors that do not fit each other are refused by name.
func TestGroupedRefusals(t *testing.T) {
	for _, c := range []struct {
		name           string
		config, header [2]string
		want           string
	}{
		{"gptq-4", same, [2]string{`"m.scales"`, `"m.scalez"`}, "m.scales: is not in the checkpoint"},
		{"gptq-4", same, [2]string{`"m.qzeros"`, `"m.qzeroz"`}, "m.qzeros: is not in the checkpoint"},
		{"gptq-4-order", same, [2]string{`"m.g_idx"`, `"m.g_idy"`}, "m.g_idx: is not in the checkpoint"},
		{"int4-rows", [2]string{`"symmetric": false`, `"symmetric": true`}, same, "m.weight_zero_point: is in the checkpoint, whose quantization_config says symmetric"},
		{"int4", [2]string{`"symmetric": true`, `"symmetric": false`}, same, "m.weight_zero_point: is not in the checkpoint"},
		{"gptq-4", [2]string{`"group_size": 128`, `"group_size": 64`}, same, "m.scales: has shape [1 32] instead of [2 32]"},
		{"gptq-4", [2]string{`"group_size": 128`, `"group_size": 96`}, same, "no whole groups of 96"},
		{"gptq-3", [2]string{`"bits": 3`, `"bits": 4`}, same, "m.scales: has shape [4 32] instead of [3 32]"},
		{"awq", same, [2]string{`"I32","shape":[128,4]`, `"F32","shape":[128,4]`}, "m.qweight: has shape [128 4] of f32"},
		{"awq", same, [2]string{`"I32","shape":[2,4]`, `"I32","shape":[4,2]`}, "m.qzeros: has shape [4 2] of i32 instead of [2 4]"},
		{"nvfp4", same, [2]string{`"m.weight_global_scale"`, `"m.weight_global_scalf"`}, "m.weight_global_scale: is not in the checkpoint"},
		{"nvfp4", same, [2]string{`"m.weight_scale"`, `"m.weight_scalf"`}, "m.weight_scale: is not in the checkpoint"},
		{"nvfp4", same, [2]string{`"F8_E4M3"`, `"U8"`}, "m.weight_scale: has shape [32 8] of u8 instead of [32 8] of f8_e4m3"},
		{"nvfp4", same, [2]string{`[32,8]`, `[8,32]`}, "m.weight_scale: has shape [8 32]"},
		{"nvfp4", same, [2]string{`"U8","shape":[32,64]`, `"I8","shape":[32,64]`}, "m.weight_packed: has shape [32 64] of i8"},
		{"nvfp4-modelopt", same, [2]string{`"m.weight_scale_2"`, `"m.weight_scale_3"`}, "m.weight_scale_2: is not in the checkpoint"},
		{"nvfp4-modelopt", same, [2]string{`"shape":[32,64]`, `"shape":[64,32]`}, "m.weight_scale: has shape [32 8]"},
		{"gptq-8", same, [2]string{`"F16"`, `"BF16"`}, "m.scales: is stored as bf16; scales in f16 are read with codes of 8 bits"},
	} {
		x, err := Open(changed(t, c.name, c.config, c.header, nil))
		if err == nil {
			x.Close()
		}
		var own *Error
		if !errors.As(err, &own) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %v %v: %v, want %q", c.name, c.config, c.header, err, c.want)
		}
	}
}

// TestGroupedDamage checks that a scale that is NaN, a group index that is out of range and a zero
// point of 8 bits that is not 128 are found.
func TestGroupedDamage(t *testing.T) {
	for _, c := range []struct {
		name, tensor string
		value        uint16
		want         string
	}{
		{"gptq-4", "m.scales", 0x7e00, "has a NaN"},
		{"int4", "m.weight_scale", 0x7f80, "has a NaN"},
		{"nvfp4", "m.weight_scale", 0x7f7f, "m.weight_scale: has a NaN"},
		{"nvfp4-modelopt", "m.weight_scale", 0x00ff, "m.weight_scale: has a NaN"},
		{"gptq-8", "m.qzeros", 5, "has a zero point of 6"},
		{"gptq-4-order", "m.g_idx", 4, "puts input 0 in group 4"},
		{"int4-order", "m.weight_g_idx", 0xffff, "in group 65535"},
	} {
		x, err := Open(changed(t, c.name, same, same, func(data []byte, offset func(string) int) {
			binary.LittleEndian.PutUint16(data[offset(c.tensor):], c.value)
		}))
		if err == nil {
			w, _ := x.Tensor("m.weight")
			err = x.ReadRows("m.weight", 0, 32, make([]byte, w.Bytes))
			x.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestGlobalScaleDamage checks that a global scale that makes weights infinite or NaN is found.
func TestGlobalScaleDamage(t *testing.T) {
	const infinite, nan, huge, tiny, zero = 0x7f800000, 0x7fc00000, 0x7f000000, 0x00000001, 0
	for _, c := range []struct {
		name, tensor string
		bits         []uint32
	}{
		{"nvfp4", "m.weight_global_scale", []uint32{nan, tiny, zero}},
		{"nvfp4-modelopt", "m.weight_scale_2", []uint32{nan, infinite, huge}},
	} {
		for _, bits := range c.bits {
			x, err := Open(changed(t, c.name, same, same, func(data []byte, offset func(string) int) {
				binary.LittleEndian.PutUint32(data[offset(c.tensor):], bits)
			}))
			if err == nil {
				err = x.ReadRows("m.weight_global_scale", 0, 1, make([]byte, 4))
				x.Close()
			}
			if want := c.tensor + ": makes weights a NaN or an infinity"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %#x: %v, want %q", c.name, bits, err, want)
			}
		}
	}
}

// TestGroupingOf checks what is read of published configs, and that other forms are refused by the
// key and its value.
func TestGroupingOf(t *testing.T) {
	const (
		gptq   = `{"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false,"sym":true,"damp_percent":0.01,"model_file_base_name":"model"}`
		awq    = `{"quant_method":"awq","bits":4,"group_size":128,"modules_to_not_convert":null,"version":"gemm","zero_point":true}`
		int4   = `{"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],"input_activations":null,"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":128,"symmetric":true,"actorder":null,"dynamic":false}}}}`
		floats = `{"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized","ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],"input_activations":{"num_bits":4,"type":"float","dynamic":"local"},"weights":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16,"symmetric":true,"actorder":null,"dynamic":false}}}}`
		opt    = `{"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"float","group_size":16}}}}`
		flat   = `{"quant_method":"modelopt_fp4","quant_algo":"NVFP4","group_size":16,"exclude_modules":["lm_head"]}`
	)
	for text, want := range map[string]Grouping{
		floats: {Dialect: Compressed, Bits: 4, Size: 16, NoZeros: true, Float: true, Skip: []string{"lm_head"}},
		opt:    {Dialect: ModelOpt, Bits: 4, Size: 16, NoZeros: true, Float: true, Skip: []string{"lm_head"}},
		flat:   {Dialect: ModelOpt, Bits: 4, Size: 16, NoZeros: true, Float: true, Skip: []string{"lm_head"}},
		gptq:   {Dialect: GPTQ, Bits: 4, Size: 128, LessOne: true, Skip: []string{"lm_head"}},
		awq:    {Dialect: AWQ, Bits: 4, Size: 128, Skip: []string{"lm_head"}},
		int4:   {Dialect: Compressed, Bits: 4, Size: 128, NoZeros: true, Skip: []string{"lm_head"}},
	} {
		g, ok, err := GroupingOf(json.RawMessage(text))
		if err != nil || !ok || g.Dialect != want.Dialect || g.Bits != want.Bits || g.Size != want.Size || g.LessOne != want.LessOne || g.NoZeros != want.NoZeros || g.Float != want.Float || !slices.Equal(g.Skip, want.Skip) {
			t.Errorf("%s: %+v, %v, want %+v", text, g, err, want)
		}
	}
	g, _, err := GroupingOf(json.RawMessage(strings.Replace(gptq, `"sym"`, `"dynamic":{"-:model\\.layers\\.1\\..*":{}},"lm_head":true,"sym"`, 1)))
	if err != nil || !slices.Equal(g.Skip, []string{`re:model\.layers\.1\..*`}) {
		t.Errorf("%+v, %v", g, err)
	}
	for _, c := range []struct{ of, from, to, want string }{
		{gptq, `"bits":4`, `"bits":5`, "bits 5"},
		{gptq, `"bits":4`, `"bits":"4"`, `bits "4"`},
		{gptq, `128`, `16`, "group_size 16"},
		{gptq, `128`, `131072`, "group_size 131072"},
		{gptq, `128`, `null`, "group_size null"},
		{gptq, `"sym"`, `"checkpoint_format":"marlin","sym"`, `checkpoint_format "marlin"`},
		{gptq, `"sym"`, `"is_marlin_format":true,"sym"`, "is_marlin_format"},
		{gptq, `"sym"`, `"pack_dtype":"int8","sym"`, `pack_dtype "int8"`},
		{gptq, `"sym"`, `"dynamic":{"+:a":{"bits":8}},"sym"`, `dynamic "+:a"`},
		{gptq, `"sym"`, `"modules_in_block_to_quantize":[["a"]],"sym"`, "modules_in_block_to_quantize"},
		{gptq, `"desc_act":false`, `"desc_act":3`, "desc_act 3"},
		{gptq, `"sym":true`, `"lm_head":1`, "lm_head 1"},
		{gptq, `"sym":true`, `"dynamic":[]`, "known shape"},
		{awq, `gemm`, `gemv`, `version "gemv"`},
		{awq, `gemm`, `marlin`, `version "marlin"`},
		{awq, `"bits":4`, `"bits":3`, "bits 3"},
		{awq, `"zero_point":true`, `"zero_point":false`, "zero_point false"},
		{int4, `pack-quantized`, `marlin-24`, `format "marlin-24"`},
		{int4, `"group",`, `"tensor",`, `strategy "tensor"`},
		{int4, `"group_size":128`, `"group_size":48`, "group_size 48"},
		{int4, `"group_size":128`, `"group_size":null`, "group_size null"},
		{int4, `"actorder":null`, `"actorder":"other"`, `actorder "other"`},
		{int4, `"dynamic":false`, `"dynamic":true`, "dynamic true"},
		{int4, `"input_activations":null`, `"input_activations":{}`, "input_activations"},
		{int4, `"Linear"`, `"re:x"`, "targets"},
		{floats, `nvfp4-pack`, `mxfp4-pack`, `format "mxfp4-pack-quantized"`},
		{floats, `tensor_group`, `group`, `strategy "group"`},
		{floats, `"group_size":16`, `"group_size":32`, "group_size 32"},
		{floats, `"group_size":16`, `"group_size":null`, "group_size null"},
		{floats, `"symmetric":true`, `"symmetric":false`, "symmetric false"},
		{floats, `"dynamic":false`, `"dynamic":true`, "dynamic true"},
		{floats, `"actorder":null`, `"actorder":"group"`, `actorder "group"`},
		{floats, `"Linear"`, `"re:x"`, "targets"},
		{floats, `"ignore"`, `"sparsity_config":{"format":"sparse-24"},"ignore"`, `sparsity "sparse-24"`},
		{floats, `"weights"`, `"output_activations":{},"weights"`, "output_activations"},
		{opt, `"group_size":16`, `"group_size":32`, "group_size 32"},
		{opt, `"num_bits":4`, `"num_bits":8`, "weights of another type"},
		{opt, `{"group_0"`, `{"group_1":{},"group_0"`, "2 config_groups"},
		{flat, `16`, `32`, "group_size 32"},
	} {
		text := strings.Replace(c.of, c.from, c.to, 1)
		_, ok, err := GroupingOf(json.RawMessage(text))
		var refused *GroupingError
		if ok || !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", text, err, c.want)
		}
	}
	for _, other := range []string{``, `null`, `{}`, `{"quant_method":"fp8"}`, `[]`, `{"quant_method":"compressed-tensors","config_groups":{"a":{"weights":{"num_bits":8,"type":"int"}}}}`} {
		if _, ok, err := GroupingOf(json.RawMessage(other)); ok || err != nil {
			t.Errorf("%s: %v, %v", other, ok, err)
		}
	}
}

// FuzzGrouped reads joined tensors of any bytes: a config and a file of safetensors.
func FuzzGrouped(f *testing.F) {
	for _, name := range groupedLayouts {
		config, err := os.ReadFile(filepath.Join(groupedDir, name, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		weights, err := os.ReadFile(filepath.Join(groupedDir, name, "model.safetensors"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(config, weights)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, config, weights []byte) {
		for file, b := range map[string][]byte{"config.json": config, "model.safetensors": weights} {
			if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c, err := Open(dir)
		if err != nil {
			return
		}
		defer c.Close()
		for _, x := range c.Tensors() {
			if x.joined == nil || x.Bytes > 1<<20 {
				continue
			}
			b := make([]byte, x.Bytes)
			if err := c.ReadRows(x.Name, 0, int(x.Rows()), b); err != nil {
				continue
			}
			values := make([]float32, x.Elements())
			ref.Dequantize(x.Format, b, values)
			for i, v := range values {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					t.Fatalf("%s: element %d is %v", x.Name, i, v)
				}
			}
		}
	})
}
