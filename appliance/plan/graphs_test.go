package plan_test

import (
	"fmt"
	"testing"

	"vapp.dev/appliance/plan"
)

// TestCaptureSizes: vLLM's rule, as its logs print it, and what profiles make of it.
func TestCaptureSizes(t *testing.T) {
	for _, c := range []struct {
		fields         string
		count, largest int
	}{
		{`scheduler: {maxNumSeqs: 256, maxNumBatchedTokens: 2048}`, 51, 512},
		{`scheduler: {maxNumSeqs: 32, maxNumBatchedTokens: 8192}, speculative: {method: "ngram", numTokens: 2}`, 26, 192},
		{`scheduler: {maxNumSeqs: 32, maxNumBatchedTokens: 8192}, speculative: {method: "ngram", numTokens: 2}, cudagraph: mode: "full_decode_only"`, 14, 96},
		{`scheduler: maxNumSeqs: 1, cudagraph: mode: "piecewise"`, 2, 2},
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

// TestHost: on a GPU what lies in the machine's memory counts against no budget, on
// a CPU all of it does.
func TestHost(t *testing.T) {
	fields := `memory: swapSpace: "2GiB"`
	gpu := made(t, on(t, "meta-llama/Llama-3.2-1B", fields, "a100-80g"))
	i := on(t, "meta-llama/Llama-3.2-1B", fields, "a100-80g")
	i.Opener, i.Facts = in(nil, nil, server).Opener, server
	cpu := made(t, i)
	for _, item := range []string{"text", "runtime", "swap"} {
		for name, p := range map[plan.Basis]*plan.Plan{plan.Host: gpu, plan.Bound: cpu} {
			found := ""
			for _, it := range p.Ledger {
				if it.Name == item {
					found = fmt.Sprint(it.Basis)
				}
			}
			if found != string(name) {
				t.Errorf("%s is %q on backend %s", item, found, p.Backend)
			}
		}
	}
	if gpu.Ledger.HostTotal() == 0 || cpu.Ledger.HostTotal() != 0 || gpu.GoMemoryLimit == 0 {
		t.Errorf("host: %d and %d bytes", gpu.Ledger.HostTotal(), cpu.Ledger.HostTotal())
	}
}
