package plan_test

import (
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/cpu"
)

// TestCaptureSizes: vLLM's rule, with the sizes that its logs print, and the effects of a profile's
// fields.
func TestCaptureSizes(t *testing.T) {
	for _, c := range []struct {
		fields         string
		count, largest int
	}{
		{`scheduler: {maxNumSeqs: 256, maxNumBatchedTokens: 2048}`, 51, 512},
		{`scheduler: {maxNumSeqs: 32, maxNumBatchedTokens: 8192}, speculative: {method: "ngram", numTokens: 2}`, 26, 192},
		{`scheduler: {maxNumSeqs: 32, maxNumBatchedTokens: 8192}, speculative: {method: "ngram", numTokens: 2}, cudagraph: mode: "full_decode_only"`, 14, 96},
		{`scheduler: maxNumSeqs: 1, cudagraph: mode: "piecewise"`, 2, 2},
		{`scheduler: maxNumSeqs: 32, cudagraph: mode: "full"`, 11, 64},
		{`scheduler: maxNumSeqs: 32, cudagraph: mode: "full_decode_only"`, 7, 32},
		{`scheduler: {maxNumSeqs: 100, maxNumBatchedTokens: 100}`, 15, 96},
		{`cudagraph: mode: "none"`, 0, 0},
		{`cudagraph: captureSizes: [64, 1, 8, 8]`, 3, 64},
		{`cudagraph: captureSizes: [1, 2, 4, 10], speculative: {method: "ngram", numTokens: 2}`, 2, 6},
	} {
		got := made(t, on(t, "meta-llama/Llama-3.2-1B", c.fields, "a100-80g")).Options.Backend.Graphs.Sizes
		if len(got) != c.count || c.count > 0 && got[len(got)-1] != c.largest {
			t.Errorf("%s: %d sizes, %v", c.fields, len(got), got)
		}
	}
	without := made(t, on(t, "openai/gpt-oss-20b", `cudagraph: mode: "none"`, "a100-80g"))
	if n := without.Ledger.Bytes("graphs"); n != 0 {
		t.Errorf("no graphs take %d bytes", n)
	}
}

// TestHost: on a GPU, lines in the machine's memory do not count against the budget. On a CPU all count
// except swap space, which is a file; ref has swap space in the Go heap.
func TestHost(t *testing.T) {
	fields := `memory: swapSpace: "2GiB"`
	gpu := made(t, on(t, "meta-llama/Llama-3.2-1B", fields, "a100-80g"))
	i := on(t, "meta-llama/Llama-3.2-1B", fields, "a100-80g")
	i.Opener, i.Facts = in(nil, nil, server).Opener, server
	heap := made(t, i)
	i.Opener, i.Facts.Backend, i.Facts.Variants = cpu.Opener{}, "cpu", []string{"avx2"}
	file := made(t, i)
	for _, c := range []struct {
		p    *plan.Plan
		item string
		want plan.Basis
	}{
		{gpu, "text", plan.Host}, {gpu, "children", plan.Host}, {gpu, "runtime", plan.Host}, {gpu, "swap", plan.Host},
		{heap, "text", plan.Bound}, {heap, "children", plan.Bound}, {heap, "runtime", plan.Bound}, {heap, "swap", plan.Exact},
		{file, "text", plan.Bound}, {file, "runtime", plan.Bound}, {file, "swap", plan.Apart},
	} {
		var found plan.Basis
		for _, it := range c.p.Ledger {
			if it.Name == c.item {
				found = it.Basis
			}
		}
		if found != c.want {
			t.Errorf("%s is %q on backend %s, want %q", c.item, found, c.p.Backend, c.want)
		}
	}
	if gpu.Ledger.HostTotal() == 0 || heap.Ledger.HostTotal() != 0 || gpu.GoMemoryLimit == 0 {
		t.Errorf("host: %d and %d bytes", gpu.Ledger.HostTotal(), heap.Ledger.HostTotal())
	}
	slabs := int64(file.Account.KV.Slabs(2 << 30))
	if got := file.Ledger.Bytes("swap"); got < slabs*file.Account.KV.SlabBytes || got > 2<<30 {
		t.Errorf("swap space of %d bytes for %d slabs", got, slabs)
	}
	i.Profile = on(t, "meta-llama/Llama-3.2-1B", `memory: swapSpace: "64KiB"`, "a100-80g").Profile
	if _, err := plan.Make(i); err == nil || !strings.Contains(err.Error(), "memory.swapSpace: 64KiB holds no KV slab of this model") {
		t.Errorf("less than a slab: %v", err)
	}
}
