package plan_test

import (
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/sched"
)

// TestAdmittedIsScheduled starts prompts on the scheduler itself, with a pool of the planned slabs. It
// runs exactly as many as the plan computes, although more wait.
func TestAdmittedIsScheduled(t *testing.T) {
	p := shipped(t, "smollm2.cue")
	p.MaxModelLen, p.Memory.KVCache, p.Memory.Utilization = 2048, 2<<30, 0
	p.Scheduler.MaxNumSeqs, p.Scheduler.MaxNumBatchedTokens = 512, 1024
	made := made(t, in(p, smol(t), server))
	for _, f := range made.Capacity.Lengths {
		if got := running(t, made, f.Tokens); got != f.Admitted {
			t.Errorf("of %d tokens %d run, planned are %d (steady %d)", f.Tokens, got, f.Admitted, f.Sequences)
		}
	}
}

// running returns how many sequences of a length, whose last token is the reply, the scheduler runs
// before any of them has ended.
func running(t *testing.T, p *plan.Plan, tokens int) int {
	o := p.Options
	s := sched.New(sched.Options{
		MaxModelLen: o.MaxModelLen, MaxNumSeqs: o.MaxNumSeqs, MaxNumBatchedTokens: 1 << 24, // all prompts in one step
		MaxSamples: o.MaxNumSeqs, ChunkedPrefill: true,
	}, kv.NewPool(p.Account.KV, p.Capacity.Slabs, false))
	for range o.MaxNumSeqs {
		prompt := make([]int32, tokens-1)
		q := sched.NewSeq(sched.Spec{Prompt: prompt, Params: &sample.Params{MaxTokens: o.MaxModelLen - len(prompt), PromptLogprobs: -1}})
		if err := s.Add(q); err != nil {
			t.Fatal(err)
		}
	}
	return len(s.Next().Rows)
}
