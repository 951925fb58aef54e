package plan

import (
	"errors"
	"fmt"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// Refuse returns one error for all fields that ask for what this release plans
// but cannot run, each with the word "plan-only". `vapp up` asks it; a plan
// prints them (Plan.PlanOnly).
func Refuse(p *schema.Profile) error {
	var all schema.Error
	for _, r := range planOnlyFields(p) {
		if r.asks {
			all.List = append(all.List, p.Reject(r.path, "plan-only: %s: this release plans it and does not run it; leave the field out", r.what).List...)
		}
	}
	if len(all.List) == 0 {
		return nil
	}
	return &all
}

// Runs says why the planned engine would not run though the profile asks for
// nothing that is plan-only: its device or its model's ops are. It is nil where
// it would.
func (p *Plan) Runs() error {
	if p.Account.PlanOnly == nil {
		return nil
	}
	return fmt.Errorf("plan-only: %w", p.Account.PlanOnly)
}

// planOnly lists why `vapp up` would refuse.
func (w resolved) planOnly(a *engine.Account) []string {
	var out []string
	if a.PlanOnly != nil {
		out = append(out, because(a.PlanOnly))
	}
	for _, r := range planOnlyFields(w.in.Profile) {
		if r.asks {
			out = append(out, r.path+": "+r.what)
		}
	}
	return out
}

// because is a backend's refusal without the word for its kind.
func because(err error) string {
	return strings.Replace(err.Error(), ": "+backend.ErrUnsupported.Error()+":", ":", 1)
}

// checkLimits refuses what has no room in a step.
func checkLimits(p *schema.Profile) error {
	if n := p.Serve.Limits.MaxLogprobs; n < 0 || n > engine.MaxLogprobs {
		return p.Reject("serve.limits.maxLogprobs", "%d alternatives a token are more than a step has room for; allowed: 0 to %d", n, engine.MaxLogprobs)
	}
	return nil
}

// wish is a field that asks for something planned only.
type planOnlyField struct {
	path string
	asks bool
	what string
}

func planOnlyFields(p *schema.Profile) []planOnlyField {
	return []planOnlyField{
		{"multimodal", vision(p), "images and video"},
		{"lora", p.LoRA != nil, "LoRA adapters"},
		{"parallel.tensor", p.Parallel.Tensor > 1, "tensor parallelism"},
		{"parallel.pipeline", p.Parallel.Pipeline > 1, "pipeline parallelism"},
		{"reload.structural", p.Reload.Structural == "swap", "swapping engines on a structural change"},
	}
}

// numberOf prints a count with its noun.
func numberOf(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Placed gives a family's refusal of a Build the place in the profile of the
// wish that it refuses: the one without which the model can be built. try builds
// the model of a source. Other errors stay as they are.
func LocateBuildError(p *schema.Profile, s engine.Source, err error, try func(engine.Source) error) error {
	for _, c := range []struct {
		path string
		drop func(*engine.Source)
	}{
		{"parallel.tensor", func(s *engine.Source) { s.Build.Shard = backend.Whole }},
		{"parallel.pipeline", func(s *engine.Source) { s.Build.Pipe = backend.Whole }},
		{"model.dtype", func(s *engine.Source) { s.Build.Dtype = 0 }},
		{"quantization", func(s *engine.Source) { s.Build.Quantize = 0 }},
		{"speculative.method", func(s *engine.Source) { s.Build.Draft, s.Build.Verify = 0, 0 }},
		{"multimodal.limits", func(s *engine.Source) { s.Build.Vision = false }},
		{"memory.kvRebuild", func(s *engine.Source) { s.Build.Rebuild = false }},
	} {
		less := s
		c.drop(&less)
		var placed *schema.Error
		if less.Build != s.Build && !errors.As(err, &placed) && try(less) == nil {
			return p.Reject(c.path, "%v", err)
		}
	}
	return err
}
