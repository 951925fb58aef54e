package plan_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// TestWhyNotAnswers applies every change and every pair of an answer: the goal is then met.
func TestWhyNotAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
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
		a, err := plan.WhyNot(i, plan.Goal{Seqs: seqs, Tokens: tokens})
		if err != nil {
			continue // no change helps this profile, for example too few tokens a step
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
			g, err := plan.ParseGoal(c.New)
			if err != nil {
				t.Fatal(err)
			}
			seqs, tokens = g.Seqs, g.Tokens
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

// TestOtherDevices: for a profile that does not fit a small device, larger devices of the catalogue are
// suggested, but none that is plan-only.
func TestOtherDevices(t *testing.T) {
	base, m := shipped(t, "llama-3.2-1b.cue"), llama1B(t)
	small, err := devices.Find("t4")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		gib  float64 // of KV cache
		some bool    // some device that is not plan-only fits
	}{{10.5, true}, {11, true}, {20, true}, {27.2, true}, {100, true}, {185, false}} {
		p := *base
		p.Memory.Utilization, p.Memory.KVCache = 0, schema.Bytes(c.gib*(1<<30))
		_, err := plan.Make(plan.Inputs{Profile: &p, Model: m, Opener: cuda.Opener{}, Facts: small.Facts("cuda")})
		no := (*plan.DoesNotFitError)(nil)
		if !errors.As(err, &no) {
			t.Errorf("%v GiB: %v", c.gib, err)
			continue
		}
		var named []string
		for _, change := range no.Changes {
			if change.Path != "--gpu" {
				continue
			}
			d, err := devices.Find(change.New)
			if err != nil || d.PlanOnly != "" {
				t.Errorf("%v GiB: %v: %v, %s", c.gib, change, err, d.PlanOnly)
			}
			named = append(named, d.Name)
		}
		if (len(named) > 0) != c.some {
			t.Errorf("%v GiB: %q are named", c.gib, named)
		}
	}
}
