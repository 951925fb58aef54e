package compat

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

// blocksOf returns the number of blocks, 0 where the release refuses.
func blocksOf(t *testing.T, i Inputs) int64 {
	t.Helper()
	o, err := work(i)
	var short *DoesNotFitError
	switch {
	case errors.As(err, &short):
		return 0
	case err != nil:
		t.Fatal(err)
	}
	return o.blocks
}

// TestMoreMemory checks that more memory never gives fewer blocks.
func TestMoreMemory(t *testing.T) {
	for _, s := range seeds(t) {
		i := s.inputs(t)
		last := int64(-1)
		for total := int64(4 << 30); total < 160<<30; total += 3<<30 + 12345 {
			i.Device.TotalBytes = total
			i.Request.MaxNumSeqs, i.Request.ChunkedPrefill = 128, "on"
			n := blocksOf(t, i)
			if n < last {
				t.Errorf("%s: %d blocks with %d bytes, %d with less", s.Run, n, total, last)
			}
			last = n
		}
		if last <= 0 {
			t.Errorf("%s: nothing fits into 160 GiB", s.Run)
		}
	}
}

// TestLonger checks that a longer request never has more concurrency.
func TestLonger(t *testing.T) {
	for _, s := range seeds(t) {
		i := s.inputs(t)
		i.Request.KVBytes, i.Request.ChunkedPrefill = 64<<30, "on"
		last := math.Inf(1)
		for n := 1; n <= 32768; n += 97 {
			i.Request.MaxModelLen = n
			o := must(t, i)
			x := o.concurrency(int64(n))
			if x > last {
				t.Errorf("%s: %.4f requests of %d tokens, %.4f of fewer", s.Run, x, n, last)
			}
			last = x
		}
	}
}

// TestAutoLength checks that the automatic length is the largest that fits, and equals the length
// in a refusal.
func TestAutoLength(t *testing.T) {
	for _, s := range seeds(t) {
		if !s.Release.atLeast(V017) {
			continue
		}
		i := s.inputs(t)
		i.Request.MaxModelLen, i.Request.KVBytes = -1, 1<<30
		o := must(t, i)
		i.Request.MaxModelLen = int(o.length)
		must(t, i)
		i.Request.MaxModelLen++
		_, err := Make(i)
		var short *DoesNotFitError
		if !errors.As(err, &short) || short.Longest != int(o.length) || short.Need <= short.Have {
			t.Errorf("%s: %d tokens: %v, want a refusal that names %d", s.Run, i.Request.MaxModelLen, err, o.length)
		}
		if err != nil && !strings.Contains(err.Error(), "maxModelLen") {
			t.Errorf("%v names no field", err)
		}
	}
}

// TestTooSmall checks a device that is smaller than the weights.
func TestTooSmall(t *testing.T) {
	i := run9(t, "gemma-4-31B-it bf16").inputs(t)
	i.Device.TotalBytes = 24 << 30
	_, err := Make(i)
	var short *DoesNotFitError
	if !errors.As(err, &short) || short.Have >= 0 || short.Longest != 0 {
		t.Errorf("%v", err)
	}
}

// TestBlockSizeOverridden checks the warning for a block size below the one that a state needs.
func TestBlockSizeOverridden(t *testing.T) {
	i := run9(t, "Qwen3.5-27B-FP8 TP=2 MTP").inputs(t)
	i.Request.BlockSize = 32
	r, err := Make(i)
	if err != nil {
		t.Fatal(err)
	}
	l, ok := r.Find("attention block size")
	if !ok || l.Value != 800 || !strings.Contains(l.Note, "memory.blockSize 32") {
		t.Errorf("%+v", l)
	}
	i.Request.BlockSize = 1600
	r, err = Make(i)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Find("attention block size"); ok {
		t.Error("a larger block size wins")
	}
}

// TestPipeline checks that stages share the layers, and that the stage with the fewest blocks
// limits the cache.
func TestPipeline(t *testing.T) {
	i := run9(t, "gemma-4-26B-A4B bf16 eager").inputs(t)
	whole := must(t, i).stages[0].total
	i.Request.PipelineParallel = 4
	i.Request.Utilization = 0.5
	o := must(t, i)
	var sum int64
	for _, l := range o.stages {
		sum += l.total
	}
	if embed := int64(262144 * 2816 * 2); sum < whole+embed-200<<20 || sum > whole+embed+2<<30 {
		t.Errorf("four stages hold %d bytes, one holds %d, and the tied embedding is on two", sum, whole)
	}
	if _, least := o.least(); least != o.blocks {
		t.Error("not the least of the stages")
	}
	layers := int64(0)
	for stage := range int64(4) {
		first, last := o.stageLayers(stage)
		layers += last - first
	}
	if layers != 30 {
		t.Errorf("%d layers on four stages, want 30", layers)
	}
}

// TestQuantizations checks that fp8 weights take about half of the bytes of bf16, in every layout.
func TestQuantizations(t *testing.T) {
	c := config(t, "meta-llama/Llama-3.1-8B-Instruct")
	at := func(quant string, major, minor int, online string) int64 {
		i := Inputs{Release: V019, Config: c, Device: Device{Name: "x", TotalBytes: 80 << 30, SMs: 132, Major: major, Minor: minor}, Request: Request{Quantization: online, MaxModelLen: 8192}}
		if quant != "" {
			i.Config.QuantizationConfig = json.RawMessage(quant)
		}
		return must(t, i).stages[0].total
	}
	whole := at("", 9, 0, "")
	embed := int64(2 * 128256 * 4096 * 2)
	want := embed + (whole-embed)/2
	for name, got := range map[string]int64{
		"online on Hopper": at("", 9, 0, "fp8"), "online on Ampere": at("", 8, 0, "fp8"),
		"blocks":            at(`{"quant_method":"fp8","weight_block_size":[128,128],"modules_to_not_convert":["lm_head"]}`, 9, 0, ""),
		"blocks on Ampere":  at(`{"quant_method":"fp8","weight_block_size":[128,128]}`, 8, 0, ""),
		"tensor":            at(`{"quant_method":"fp8","activation_scheme":"static"}`, 9, 0, ""),
		"tensor on Ampere":  at(`{"quant_method":"fp8","activation_scheme":"static"}`, 8, 0, "fp8"),
		"channel":           at(`{"quant_method":"compressed-tensors","ignore":["lm_head"],"config_groups":{"group_0":{"weights":{"num_bits":8,"type":"float","strategy":"channel"},"input_activations":{"dynamic":true}}}}`, 9, 0, ""),
		"channel on Ampere": at(`{"quant_method":"compressed-tensors","ignore":["re:.*lm_head"],"config_groups":{"group_0":{"weights":{"num_bits":8,"type":"float","strategy":"channel"}}}}`, 8, 0, ""),
	} {
		if d := float64(got)/float64(want) - 1; d < -0.01 || d > 0.02 {
			t.Errorf("%s: %.4f GiB, want about %.4f", name, gib(got), gib(want))
		}
	}
	kept := at(`{"quant_method":"fp8","modules_to_not_convert":["model.layers.*.mlp"]}`, 9, 0, "")
	if kept <= want+1<<30 {
		t.Errorf("with the MLPs unconverted %.4f GiB", gib(kept))
	}
}

// TestReportText checks the alignment and tags of lines, and the JSON keys that docs/plan-json.md
// documents.
func TestReportText(t *testing.T) {
	r, err := Make(run9(t, "gpt-oss-20b mxfp4").inputs(t))
	if err != nil {
		t.Fatal(err)
	}
	text := r.String()
	for _, want := range []string{"Model loading took 13.72 GiB memory", "[exact]", "[fitted ±0.5 %]", "GPU KV cache size: 802,496 tokens", "Maximum concurrency for 131,072 tokens per request: 12.04x"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	data, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(data), `"residualPercent":`) || !strings.Contains(string(data), `"basis":"exact"`) {
		t.Errorf("%s, %v", data, err)
	}
}
