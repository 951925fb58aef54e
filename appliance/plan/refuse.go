package plan

import (
	"fmt"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/schema"
)

// Refuse returns one error for all fields that ask for what this release plans
// but cannot run ("planned only"), and for limits beyond its step buffers.
func Refuse(p *schema.Profile) error {
	var all schema.Error
	reject := func(path, format string, args ...any) {
		all.List = append(all.List, p.Reject(path, format, args...).List...)
	}
	for _, r := range planned(p) {
		if r.asks {
			reject(r.path, "%s: planned only, this release does not run it; leave the field out", r.what)
		}
	}
	if n := p.Serve.Limits.MaxLogprobs; n < 0 || n > engine.MaxLogprobs {
		reject("serve.limits.maxLogprobs", "%d alternatives a token are more than a step has room for; allowed: 0 to %d", n, engine.MaxLogprobs)
	}
	if len(all.List) == 0 {
		return nil
	}
	return &all
}

// wish is a field that asks for something planned only.
type wish struct {
	path string
	asks bool
	what string
}

func planned(p *schema.Profile) []wish {
	return []wish{
		{"backend", p.Backend == "cuda", "backend cuda"},
		{"model.revision", p.Model.Revision != "", "revisions of hub models (name the directory)"},
		{"quantization", p.Quantization != "none", "quantization at load (" + p.Quantization + ")"},
		{"memory.kvCacheDtype", strings.HasPrefix(p.Memory.KVCacheDtype, "fp8"), "a KV cache in " + p.Memory.KVCacheDtype},
		{"memory.swapSpace", p.Memory.SwapSpace > 0, "swap space (preempted sequences are recomputed)"},
		{"memory.kvRebuild", p.Memory.KVRebuild, "rebuilding V from K"},
		{"scheduler.itlTarget", p.Scheduler.ITLTarget > 0, "a target for inter-token latency"},
		{"cudagraph.mode", p.Cudagraph != nil && p.Cudagraph.Mode != "none", "CUDA graphs"},
		{"parsers.reasoning", p.Parsers.Reasoning != "", "reasoning parsers"},
		{"parsers.toolCall", p.Parsers.ToolCall != "", "tool-call parsers"},
		{"parsers.autoToolChoice", p.Parsers.AutoToolChoice, "automatic tool choice"},
		{"speculative", p.Speculative != nil, "speculative decoding"},
		{"parallel.tensor", p.Parallel.Tensor > 1, "tensor parallelism"},
		{"parallel.pipeline", p.Parallel.Pipeline > 1, "pipeline parallelism"},
		{"reload.structural", p.Reload.Structural == "swap", "swapping engines on a structural change"},
		{"require", p.Require != nil, "contracts"},
	}
}

// numberOf prints a count with its noun.
func numberOf(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
