//go:build linux && cgo && cuda

package engine_test

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// storedTensor is a tensor in the header of a safetensors file.
type storedTensor struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// dequantized returns a directory with a copy of a gpt-oss checkpoint whose experts are float32
// matrices [in, out] in place of MXFP4.
func dequantized(t *testing.T, from string) string {
	t.Helper()
	config, head := map[string]any{}, map[string]storedTensor{}
	text, err := os.ReadFile(filepath.Join(from, "config.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &config))
	delete(config, "quantization_config")
	file, err := os.ReadFile(filepath.Join(from, "model.safetensors"))
	must(t, err)
	n := 8 + binary.LittleEndian.Uint64(file)
	must(t, json.Unmarshal(file[8:n], &head))
	bytes := func(name string) []byte { return file[n:][head[name].Offsets[0]:head[name].Offsets[1]] }

	all, body := map[string]storedTensor{}, []byte(nil)
	for _, name := range slices.Sorted(maps.Keys(head)) {
		if name == "__metadata__" || strings.HasSuffix(name, "_scales") {
			continue
		}
		to, b := head[name], bytes(name)
		if stem, coded := strings.CutSuffix(name, "_blocks"); coded {
			experts, out, in := to.Shape[0], to.Shape[1], 32*to.Shape[2]
			b = turnedMXFP4(b, bytes(stem+"_scales"), out, in)
			name, to.DType, to.Shape = stem, "F32", []int{experts, in, out}
		}
		to.Offsets = [2]int{len(body), len(body) + len(b)}
		body = append(body, b...)
		all[name] = to
	}
	dir := t.TempDir()
	text, err = json.Marshal(config)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	text, err = json.Marshal(all)
	must(t, err)
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	must(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), append(out, body...), 0o600))
	return dir
}

// turnedMXFP4 returns MXFP4 matrices [out, in], whose exponents are stored separately, as float32
// [in, out].
func turnedMXFP4(codes, exponents []byte, out, in int) []byte {
	var blocks []byte
	for i, e := range exponents {
		blocks = append(append(blocks, codes[16*i:16*(i+1)]...), e)
	}
	x := make([]float32, 32*len(exponents))
	ref.Dequantize(kernels.MXFP4, blocks, x)
	turned, b := make([]float32, len(x)), make([]byte, 4*len(x))
	for i, v := range x {
		matrix, row, col := i/(out*in), i/in%out, i%in
		turned[matrix*out*in+col*out+row] = v
	}
	ref.Quantize(kernels.F32, turned, b)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
