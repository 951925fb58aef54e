package plan

import (
	"errors"
	"fmt"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
	"vapp.dev/schema"
)

// Runs returns an error if the device, or an op of the model on it, is plan-only. It is nil if
// the planned engine would run.
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
	return out
}

// because returns a backend's refusal without the text of ErrUnsupported.
func because(err error) string {
	return strings.Replace(err.Error(), ": "+backend.ErrUnsupported.Error()+":", ":", 1)
}

// checkLimits refuses limits of requests that exceed the step buffers.
func checkLimits(p *schema.Profile) error {
	if n := p.Serve.Limits.MaxLogprobs; n < 0 || n > engine.MaxLogprobs {
		return p.Reject("serve.limits.maxLogprobs", "%d alternatives a token are more than the step buffers hold; allowed: 0 to %d", n, engine.MaxLogprobs)
	}
	return nil
}

// numberOf formats a count with its noun.
func numberOf(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// LocateBuildError gives a family's refusal of a Build the position of the profile field that it
// refuses: the field without which the model can be built. try builds the model of a source.
// Other errors are returned unchanged.
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
		{"lora", func(s *engine.Source) { s.Build.LoRA = models.LoRA{} }},
		{"memory.kvRebuild", func(s *engine.Source) { s.Build.Rebuild = false }},
	} {
		less := s
		c.drop(&less)
		var placed *schema.Error
		if less.Build != s.Build && !errors.As(err, &placed) && try(less) == nil {
			return p.Reject(c.path, "%v", err)
		}
	}
	return locateEditError(p, s, err, try)
}

// locateEditError is LocateBuildError for the fields that edit the config.
func locateEditError(p *schema.Profile, s engine.Source, err error, try func(engine.Source) error) error {
	var file *checkpoint.Error
	if errors.As(err, &file) && (file.File == ropeField || file.File == overridesField) {
		return p.Reject(file.File, "%s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), file.File), ": "))
	}
	less := s
	if less.Edits.Rope = nil; s.Edits.Rope != nil && try(less) == nil {
		return p.Reject(ropeField, "%v", err)
	}
	if less.Edits.Overrides = nil; s.Edits.Overrides != nil && try(less) == nil {
		return p.Reject(overridesField, "%v", err)
	}
	return err
}
