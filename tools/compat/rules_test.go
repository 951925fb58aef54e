package compat

import (
	"strings"
	"testing"
)

const mib = 1 << 20

// TestAllocator checks sizes at the limits of the pools, best fit, and merging.
func TestAllocator(t *testing.T) {
	for _, c := range []struct{ tensor, counts int64 }{
		{1, 512}, {513, 1024}, {mib, mib}, {mib + 1, mib + 512},
		{10*mib - 512, 10*mib - 512}, // shares a segment of 20 MiB
		{10 * mib, 10 * mib},         // its own segment, without remainder
		{10*mib + 512, 12*mib - (2*mib - 512) + 0},
		{11 * mib, 12 * mib}, // a remainder of 1 MiB is not split off
		{501 * mib, 502 * mib}, {259 * mib, 260 * mib}, {85 * mib, 86 * mib},
	} {
		var a allocator
		a.alloc(c.tensor)
		if a.allocated != c.counts {
			t.Errorf("a tensor of %d bytes counts %d, want %d", c.tensor, a.allocated, c.counts)
		}
	}
	var a allocator
	x, y, z := a.alloc(4*mib), a.alloc(4*mib), a.alloc(4*mib)
	if x.addr != 0 || y.addr != 4*mib || a.top != 20*mib {
		t.Errorf("three tensors of 4 MiB share a segment: %d, %d, top %d", x.addr, y.addr, a.top)
	}
	a.release(x, y)
	if w := a.alloc(7 * mib); w.addr != 0 || w.size != 8*mib {
		t.Errorf("neighbours merge, and a rest of 1 MiB stays: at %d, %d bytes", w.addr, w.size)
	}
	var own allocator
	if own.alloc(10 * mib); own.top != 10*mib {
		t.Errorf("10 MiB took a segment of %d bytes, want its own", own.top)
	}
	// 10 MiB only fits the remainder of a shared segment exactly.
	if v := a.alloc(10 * mib); v.addr != 20*mib {
		t.Errorf("10 MiB lie at %d, want a segment of their own", v.addr)
	}
	a.release(z)
	n := len(a.large)
	a.trim()
	if len(a.large) != n {
		t.Error("a segment in use was returned")
	}
}

// TestGroupSizes checks the rule of 1.5, and padding.
func TestGroupSizes(t *testing.T) {
	for _, c := range []struct {
		full, sliding int
		groups        int
		size          int64
		padding       string
	}{
		{12, 12, 2, 12, ""},
		{5, 25, 6, 5, ""},
		{12, 14, 2, 14, "Add 2 padding layers, may waste at most 16.67% KV cache memory"}, // below 1.5
		{10, 15, 3, 10, "Add 5 padding layers, may waste at most 33.33% KV cache memory"}, // not below
	} {
		var layers []kvLayer
		for i := range c.full + c.sliding {
			l := kvLayer{kind: full, token: 2048}
			if i >= c.full {
				l = kvLayer{kind: sliding, token: 2048, window: 128}
			}
			layers = append(layers, l)
		}
		got, err := layout(paging{rel: V019, block: 16, flight: 2048, stages: 1}, layers)
		if err != nil {
			t.Fatal(err)
		}
		var warned []string
		for _, p := range got.padding {
			warned = append(warned, p.String())
		}
		if len(got.groups) != c.groups || got.size != c.size || strings.Join(warned, "; ") != c.padding {
			t.Errorf("%d + %d layers: %d groups of %d, %q", c.full, c.sliding, len(got.groups), got.size, warned)
		}
	}
}

// TestOwnPages checks that full attention layers of different sizes form one group.
func TestOwnPages(t *testing.T) {
	layers := []kvLayer{{token: 1024}, {token: 3000}, {token: 1024}}
	c, err := layout(paging{rel: V019, block: 16, stages: 1}, layers)
	if err != nil || len(c.groups) != 1 || c.blocks(16*5048*10, 0) != 10 || c.need(33) != 3 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestDefaults checks the batch limits by device and use: memory-planning section 1.
func TestDefaults(t *testing.T) {
	for _, c := range []struct {
		name         string
		gib          int64
		library      bool
		rel          Release
		tokens, seqs int
	}{
		{"NVIDIA H100 80GB HBM3", 79, false, V019, 8192, 1024},
		{"NVIDIA H100 80GB HBM3", 79, true, V019, 16384, 1024},
		{"NVIDIA A100-SXM4-80GB", 79, false, V019, 2048, 256},
		{"NVIDIA A100-SXM4-80GB", 79, true, V019, 8192, 256},
		{"NVIDIA L4", 22, false, V019, 2048, 256},
		{"NVIDIA H100 80GB HBM3", 79, false, V07, 4096, 256},
	} {
		i := Inputs{Release: c.rel, Config: config(t, "llama-3.2-1b"), Device: Device{c.name, c.gib << 30, 100, 9, 0}, Request: Request{MaxModelLen: 4096, LibraryUse: c.library}}
		o := must(t, i)
		if o.r.MaxNumBatchedTokens != c.tokens || o.r.MaxNumSeqs != c.seqs {
			t.Errorf("%+v: %d tokens, %d sequences", c, o.r.MaxNumBatchedTokens, o.r.MaxNumSeqs)
		}
	}
}

// TestRanksBeyondHeads checks that key/value heads are replicated, so that each GPU has at least
// one.
func TestRanksBeyondHeads(t *testing.T) {
	i := Inputs{Release: V019, Config: config(t, "meta-llama/Llama-3.1-8B-Instruct"), Device: Device{"x", 80 << 30, 132, 9, 0}, Request: Request{MaxModelLen: 8192}}
	page := func(tp int) int64 {
		i.Request.TensorParallel = tp
		return must(t, i).cache.page
	}
	if page(8) != 16*2*128*2 || page(16) != page(8) || page(4) != 2*page(8) {
		t.Errorf("pages at 4, 8, 16: %d, %d, %d", page(4), page(8), page(16))
	}
	i.Request.TensorParallel = 16
	elements := int64(32*((2+2)*128*4096+2*128*4096+3*896*4096+2*4096) + 2*8016*4096 + 4096)
	if got := must(t, i).stages[0].bytes[resident]; got != 2*elements {
		t.Errorf("at 16: %d bytes of parameters, want %d", got, 2*elements)
	}
	wide := must(t, i).activation.kept
	if wide[len(wide)-1].Bytes != 32*mib {
		t.Errorf("cuBLAS on Hopper: %d bytes", wide[len(wide)-1].Bytes)
	}
}

// TestStateModes checks that mamba cache mode all rounds blocks to the delta net's chunk and
// charges every block of a request.
func TestStateModes(t *testing.T) {
	i := run9(t, "Qwen3.5-27B-FP8 TP=2 MTP").inputs(t)
	i.Request.MambaCacheMode, i.Request.MaxModelLen = "all", 32768
	o := must(t, i)
	if o.cache.bumped != 832 || o.cache.need(32768) != 4*40 {
		t.Errorf("mode all: blocks of %d, %d a request", o.cache.bumped, o.cache.need(32768))
	}
	if o.arithmetic() != Derived {
		t.Error("no log has mode all")
	}
	i.Request.MambaCacheMode, i.Request.PrefixCaching = "", "off"
	if o = must(t, i); o.cache.need(800) != 1+3*3 {
		t.Errorf("mode none: %d blocks", o.cache.need(800))
	}
	if o.arithmetic() != Exact {
		t.Error("what a log confirms is exact")
	}
}
