package compat

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// newest returns a run of the seeds in vllm-0.33, with given KV bytes.
func newest(t *testing.T, run string, bytes int64) Inputs {
	i := run9(t, run).inputs(t)
	i.Release, i.Request.KVBytes, i.Request.Cudagraph.EstimateBytes = V033, bytes, 0
	return i
}

// TestNewestBatch checks vllm-0.33's batch limits by device.
func TestNewestBatch(t *testing.T) {
	for _, c := range []struct {
		model        string
		d            Device
		r            Request
		tokens, seqs int
	}{
		{"llama-3.2-1b", Device{"NVIDIA H100 80GB HBM3", 79 << 30, 132, 9, 0}, Request{}, 8192, 1024},
		{"llama-3.2-1b", Device{"NVIDIA H100 80GB HBM3", 79 << 30, 132, 9, 0}, Request{LibraryUse: true}, 16384, 1024},
		{"llama-3.2-1b", Device{"NVIDIA B200", 178 << 30, 148, 10, 0}, Request{}, 16384, 1024},
		{"llama-3.2-1b", Device{"NVIDIA A100-SXM4-80GB", 79 << 30, 108, 8, 0}, Request{}, 2048, 256},
		{"llama-3.2-1b", Device{"NVIDIA GB10", 119 << 30, 48, 12, 1}, Request{}, 2048, 256},
		{"llama-3.2-1b", Device{"NVIDIA H100 80GB HBM3", 79 << 30, 132, 9, 0}, Request{MaxModelLen: 512, MaxNumSeqs: 4}, 2048, 4},
		{"gemma-4-26b-a4b", Device{"NVIDIA A100-SXM4-80GB", 79 << 30, 108, 8, 0}, Request{MaxModelLen: 4096}, 2496, 256}, // a video of 32 frames of 78 tokens
	} {
		o := must(t, Inputs{Release: V033, Config: config(t, c.model), Device: c.d, Request: c.r})
		if o.r.MaxNumBatchedTokens != c.tokens || o.r.MaxNumSeqs != c.seqs || o.r.Utilization != 0.92 {
			t.Errorf("%s on %s: %d tokens, %d sequences, utilization %v", c.model, c.d.Name, o.r.MaxNumBatchedTokens, o.r.MaxNumSeqs, o.r.Utilization)
		}
	}
}

// TestNewestCache checks blocks of a request, tokens and concurrency of vllm-0.33 against sums made
// by hand.
func TestNewestCache(t *testing.T) {
	for _, c := range []struct {
		run          string
		bytes        int64
		block        int64
		blocks, need int64
		size         string
	}{
		// 8192 blocks of 16 in full layers; windows of 127 + 2 x 2048 tokens: 264 + 1.
		{"gpt-oss-20b mxfp4", 99_828 * 12 * 32768, 16, 99_828, 8192 + 265, "GPU KV cache size: 1,547,198 tokens, Maximum concurrency for 131,072 tokens per request: 11.80x"},
		// A state has (3 + 2) x 5120 x 2 and 24 x 128 x 128 x 4 bytes, a token 2048: 832 is the first multiple of
		// 64 tokens that hold it. Each of three groups has 2 + 2 blocks and one inside a prefill.
		{"Qwen3.5-27B-FP8 TP=2 MTP", 504 * 17 * 832 * 2048, 832, 504, 316 + 3*5, "GPU KV cache size: 399,155 tokens, Maximum concurrency for 262,144 tokens per request: 1.52x"},
	} {
		o := must(t, newest(t, c.run, c.bytes))
		if o.cache.block != c.block || o.blocks != c.blocks || o.cache.need(o.length) != c.need {
			t.Errorf("%s: blocks of %d, %d of them, %d a request", c.run, o.cache.block, o.blocks, o.cache.need(o.length))
		}
		if l, _ := o.report().Find("GPU KV cache size"); l.Text != c.size {
			t.Errorf("%s: %s, want %s", c.run, l.Text, c.size)
		}
	}
}

// TestNullBlock checks that vllm-0.33 keeps the null block free of the request that has to fit.
func TestNullBlock(t *testing.T) {
	i := newest(t, "Llama-3.2-1B", 8193*16*32768)
	must(t, i)
	i.Request.KVBytes -= 16 * 32768
	_, err := Make(i)
	var short *DoesNotFitError
	if !errors.As(err, &short) || short.Longest != 131072-16 {
		t.Errorf("8192 blocks for a request of 8192: %v", err)
	}
	i.Request.MaxModelLen = -1
	l, _ := must(t, i).report().Find("maximum length")
	if want := "Auto-fit max_model_len: reduced from 131072 to 131056 to fit in available KV cache memory (4.0 GiB GPU)"; l.Text != want {
		t.Errorf("%s, want %s", l.Text, want)
	}
	i.Release = V019
	if o := must(t, i); o.length != 131072 {
		t.Errorf("vllm-0.19 takes the last block: %d tokens", o.length)
	}
}

// TestPaddedPages checks that vllm-0.33 pads pages that do not divide the largest one.
func TestPaddedPages(t *testing.T) {
	i := newest(t, "gemma-4-26B-A4B bf16 eager", 20<<30)
	i.Config.Raw = edit(i.Config.Raw, `"global_head_dim":512`, `"global_head_dim":384`)
	o := must(t, i)
	for _, g := range o.cache.groups {
		if g.block != 16 || g.page != 16*8*2*256*2 {
			t.Errorf("a group with blocks of %d tokens, %d bytes", g.block, g.page)
		}
	}
}

// TestNewestGraphs checks the sizes of graphs with drafts and on Blackwell.
func TestNewestGraphs(t *testing.T) {
	i := newest(t, "Qwen3.5-27B-FP8 TP=2 MTP", 12<<30)
	o := must(t, i)
	// 32 sequences of 1 + 2 tokens: steps to 192, and 3, 6 and 12 tokens of 1, 2 and 4 sequences.
	if n := len(o.graphs.piecewise); n != len(o.graphs.sizes) || most(o.graphs.sizes) != 192 || most(o.graphs.full) != 96 {
		t.Errorf("%v", o.graphs)
	}
	for _, n := range []int{3, 6, 12, 24, 96} {
		if !slices.Contains(o.graphs.sizes, n) || !slices.Contains(o.graphs.full, n) {
			t.Errorf("no graph of %d tokens: %v", n, o.graphs)
		}
	}
	for _, n := range o.graphs.full {
		if n%3 != 0 {
			t.Errorf("a graph of %d tokens for sequences of 3", n)
		}
	}
	b := Inputs{Release: V033, Config: config(t, "llama-3.2-1b"), Device: Device{"NVIDIA B200", 178 << 30, 148, 10, 0}}
	if o := must(t, b); most(o.graphs.sizes) != 1024 || len(o.graphs.sizes) != 83 {
		t.Errorf("on Blackwell %d sizes to %d", len(o.graphs.sizes), most(o.graphs.sizes))
	}
	b.Request.MaxNumBatchedTokens, b.Request.MaxNumSeqs = 100, 50
	if o := must(t, b); most(o.graphs.sizes) != 100 || len(o.graphs.full) != 10 {
		t.Errorf("a batch of 100: %v", o.graphs)
	}
}

// TestNewestRefusals checks what vllm-0.33 does not have.
func TestNewestRefusals(t *testing.T) {
	for _, c := range []struct {
		field, says string
		change      func(*Request)
	}{
		{"memory.mambaCacheMode", "allowed are none, align", func(r *Request) { r.MambaCacheMode = "all" }},
		{"memory.mambaCacheMode", "align with prefix caching", func(r *Request) { r.MambaCacheMode = "none" }},
		{"scheduler.maxNumSeqs", "lower maxNumSeqs to 504", func(r *Request) { r.MaxNumSeqs = 505 }},
	} {
		i := newest(t, "Qwen3.5-27B-FP8 TP=2 MTP", 504*17*832*2048)
		c.change(&i.Request)
		_, err := Make(i)
		var e *Error
		if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.Msg, c.says) {
			t.Errorf("%v, want %s: %s", err, c.field, c.says)
		}
	}
}

// TestNewestActivation checks the sampler's peak, and the counts that stay for penalties.
func TestNewestActivation(t *testing.T) {
	o := must(t, Inputs{Release: V033, Config: config(t, "llama-3.2-1b"), Device: Device{"NVIDIA H100 80GB HBM3", 79 << 30, 132, 9, 0}})
	sizes := map[string]int64{}
	for _, p := range append(append([]piece{}, o.activation.sampler...), o.activation.kept...) {
		sizes[p.Name] = p.Bytes
	}
	if want := int64(1024 * 128256 * (2 + 4 + 4)); sizes["sampler"] != want {
		t.Errorf("sampler: %d bytes, want %d", sizes["sampler"], want)
	}
	if want := int64(1024 * (128256*4 + 128256/8)); sizes["penalty counts"] != want {
		t.Errorf("penalty counts: %d bytes, want %d", sizes["penalty counts"], want)
	}
}
