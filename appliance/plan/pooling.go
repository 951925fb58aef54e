package plan

import (
	"fmt"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// poolingOptions returns the pooling fields of a profile.
func poolingOptions(p *schema.Profile) engine.PoolingOptions {
	w := engine.PoolingOptions{Runner: p.Model.Runner, Convert: p.Model.Convert}
	if s := p.Pooling; s != nil {
		w.Type, w.Normalize, w.Activation, w.Tokens = s.Type, s.Normalize, s.Activation, s.ClassifierFromToken
	}
	return w
}

// everyRow reports whether pooling by the model's default type needs a row of each token.
func everyRow(m *engine.Model) bool { return m.Pooling != nil && m.Pooling.Type != "LAST" }

const draws = "the model pools, and draws no tokens"

// CheckITLTarget refuses scheduler.itlTarget for a pooling model, which generates no tokens.
func CheckITLTarget(p *schema.Profile, m *engine.Model) error {
	if p.Scheduler.ITLTarget > 0 && m.Pooling != nil {
		return p.Reject("scheduler.itlTarget", "%s; leave the field out", draws)
	}
	return nil
}

// checkPooling refuses fields that do not apply to a pooling model, and pooling fields for a
// generating one.
func (w resolved) checkPooling() error {
	p, m := w.in.Profile, w.in.Model
	if m.Pooling == nil {
		if p.Pooling != nil {
			return p.Reject("pooling", "%s generates text (%s); set model.runner to \"pooling\", or leave the field out", m.Source.Name, m.Config.Architecture)
		}
		return nil
	}
	if err := CheckITLTarget(p, m); err != nil {
		return err
	}
	switch {
	case p.Speculative != nil:
		return p.Reject("speculative", "%s; leave the field out", draws)
	case p.LoRA != nil:
		return p.Reject("lora", "adapters are for models that generate text, and %s pools; leave the field out", m.Source.Name)
	case p.Parsers.Reasoning != "":
		return p.Reject("parsers.reasoning", "%s; leave the field out", draws)
	case p.Parsers.ToolCall != "":
		return p.Reject("parsers.toolCall", "%s; leave the field out", draws)
	case m.Pooling.Task == "embed" && p.Pooling != nil && p.Pooling.Activation != "":
		return p.Reject("pooling.activation", "%s gives embeddings, which have no classes; leave the field out", m.Source.Name)
	case m.Pooling.Task == "classify" && p.Pooling != nil && p.Pooling.Normalize != nil:
		return p.Reject("pooling.normalize", "%s gives classes, which have no length; leave the field out", m.Source.Name)
	}
	return nil
}

// poolingChoice returns the plan's line about pooling.
func poolingChoice(q *engine.Pooling) backend.Choice {
	parts := []string{q.Task, q.Type}
	switch {
	case q.Task == "embed" && q.Normalize:
		parts = append(parts, "normalized")
	case q.Task == "embed":
		parts = append(parts, "not normalized")
	case len(q.Tokens) > 0:
		parts = append(parts, fmt.Sprintf("from %s", strings.Join(q.Tokens, ", ")), q.Activation)
	default:
		parts = append(parts, numberOf(len(q.Labels), "label"), q.Activation)
	}
	return backend.Choice{Name: "pooling", Value: strings.Join(parts, ", "), Why: q.Why}
}
