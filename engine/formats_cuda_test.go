//go:build linux && cgo && cuda

package engine_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"vapp.dev/engine/enginetest"
	"vapp.dev/kernels"
)

// formatsCUDA are the matrix formats beyond those of the recorded checkpoints.
var formatsCUDA = []struct {
	format kernels.Format
	change func(*toy)
}{
	{kernels.Q4_0, nil},
	{kernels.Q8_0, nil},
	{kernels.Q4_K, nil},
	{kernels.Q6_K, nil},
	{kernels.F16, nil},
	{kernels.MXFP4, nil},
	{kernels.F8E4M3, scaled(`{"quant_method": "fp8"}`)},
	{kernels.F8E4M3, scaled(`{"quant_method": "fbgemm_fp8"}`)},
	{kernels.F8E4M3, scaled(`{"quant_method": "fp8", "weight_block_size": [128, 128]}`)},
	{kernels.I8, scaled(compressedInt8("tensor", "null", "null"))},
	{kernels.I8, scaled(compressedInt8("channel", "null", "null"))},
	{kernels.I8, scaled(compressedInt8("channel", "null", `{"num_bits": 8, "type": "int", "strategy": "token", "dynamic": true}`))},
	{kernels.BF16, func(y *toy) { y.build.Quantize = kernels.F8E4M3 }},
}

// TestFormatsCUDA: a Llama model of every weight format continues as on ref, unless ref's two largest
// logits are closer than the error of bf16 products.
func TestFormatsCUDA(t *testing.T) {
	emulate(t)
	dir := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(dir, enginetest.Llama{Hidden: 256, HeadDim: 64, Heads: 4, KVHeads: 1, Layers: 1, Intermediate: 256, Vocab: 500, Seed: 5}); err != nil {
		t.Fatal(err)
	}
	prompt := make([]int32, 37)
	for i := range prompt {
		prompt[i] = int32(i * i * 7 % 490)
	}
	for i, f := range formatsCUDA {
		t.Run(fmt.Sprintf("%d, %v", i, f.format), func(t *testing.T) {
			y := smallRun(dir)
			y.stored.format = f.format
			if f.change != nil {
				f.change(&y)
			}
			likeRef(t, y, y, [][]int32{prompt, prompt[:9]}, 0.01) // logits have a standard deviation of 0.3
		})
	}
}
