package plan_test

import (
	"math/rand/v2"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
)

// TestWhyNotAnswers applies every change that an answer names, and every pair:
// the goal is then met.
func TestWhyNotAnswers(t *testing.T) {
	base, m := shipped(t, "llama-3.2-1b.cue"), llama1B(t)
	r := rand.New(rand.NewPCG(3, 4))
	fits, changes, pairs := 0, 0, 0
	for range 30 {
		d, err := devices.Find(one(r, "t4", "l4", "a100-40g"))
		if err != nil {
			t.Fatal(err)
		}
		p := vary(r, base, m.Config.MaxPositionEmbeddings)
		p.Memory.KVCacheDtype = "auto"
		i := plan.Inputs{Profile: p, Model: m, Opener: cuda.Opener{}, Facts: d.Facts("cuda")}
		seqs, tokens := 1+r.IntN(200), 16+r.IntN(64<<10)
		if r.IntN(3) == 0 {
			seqs, tokens = 1+r.IntN(3), 16+r.IntN(256)
		}
		a, err := plan.WhyNot(i, seqs, tokens)
		if err != nil {
			continue // a profile that nothing changes, such as too few tokens a step
		}
		if made, err := plan.Make(i); a.Fits != (err == nil && holdsGoal(made, seqs, tokens)) {
			t.Errorf("%d×%d fits: %v, planned: %v", seqs, tokens, a.Fits, err)
		}
		if a.Fits {
			fits++
		}
		for _, c := range a.Changes {
			changes++
			meets(t, i, seqs, tokens, c)
		}
		for _, two := range a.Pairs {
			pairs++
			meets(t, i, seqs, tokens, two[0], two[1])
		}
	}
	if fits < 2 || changes < 8 || pairs < 4 {
		t.Errorf("only %d that fit, %d changes and %d pairs were seen", fits, changes, pairs)
	}
}

func holdsGoal(p *plan.Plan, seqs, tokens int) bool {
	return tokens <= p.Options.MaxModelLen && seqs <= p.Options.MaxNumSeqs && p.Account.KV.Sequences(p.Capacity.Slabs, tokens) >= seqs
}

func meets(t *testing.T, i plan.Inputs, seqs, tokens int, cs ...plan.Change) {
	t.Helper()
	for _, c := range cs {
		if c.Path == "--why-not" {
			var err error
			if seqs, tokens, err = plan.ParseGoal(c.New); err != nil {
				t.Fatal(err)
			}
			continue
		}
		i = changed(t, i, c)
	}
	p, err := plan.Make(i)
	if err != nil || !holdsGoal(p, seqs, tokens) {
		t.Errorf("%v: %d×%d do not fit: %v", cs, seqs, tokens, err)
	}
	if cs[0].Cost == "" {
		t.Errorf("%v costs nothing", cs)
	}
}
