package plan

import (
	"cmp"
	"encoding/json"
	"fmt"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/schema"
)

// The fields of a profile that edit the checkpoint's config.
const (
	overridesField = "model.overrides"
	ropeField      = "model.rope"
)

// edits returns the changes of the config that a profile makes.
func edits(p *schema.Profile) checkpoint.Edits {
	var e checkpoint.Edits
	if len(p.Model.Overrides) > 0 {
		e.Overrides = mustJSON(p.Model.Overrides)
	}
	if r := p.Model.Rope; r != nil {
		e.Rope = mustJSON(ropeParameters{
			r.Type, r.Theta, r.Factor, int64(r.Original), r.AttentionFactor, r.BetaFast, r.BetaSlow,
			r.LowFreqFactor, r.HighFreqFactor, r.Alpha, r.ShortFactors, r.LongFactors,
		})
	}
	return e
}

// ropeParameters is a schema.Rope with the names of config.json.
type ropeParameters struct {
	Type            string    `json:"rope_type,omitempty"`
	Theta           float64   `json:"rope_theta,omitempty"`
	Factor          float64   `json:"factor,omitempty"`
	Original        int64     `json:"original_max_position_embeddings,omitempty"`
	AttentionFactor float64   `json:"attention_factor,omitempty"`
	BetaFast        float64   `json:"beta_fast,omitempty"`
	BetaSlow        float64   `json:"beta_slow,omitempty"`
	LowFreqFactor   float64   `json:"low_freq_factor,omitempty"`
	HighFreqFactor  float64   `json:"high_freq_factor,omitempty"`
	Alpha           float64   `json:"alpha,omitempty"`
	ShortFactors    []float64 `json:"short_factor,omitempty"`
	LongFactors     []float64 `json:"long_factor,omitempty"`
}

// mustJSON returns v as JSON. Values of a profile come from JSON.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("plan: " + err.Error())
	}
	return b
}

// editChoices returns a choice for each field of the config that the profile replaces, and one for a
// rope that depends on the planned length.
func editChoices(m *engine.Model, o engine.Options) []backend.Choice {
	var out []backend.Choice
	for _, e := range m.Config.Edited {
		out = append(out, backend.Choice{
			Name: "config " + e.Field, Value: fmt.Sprintf("%s → %s", cmp.Or(e.Old, "absent"), cmp.Or(e.New, "absent")), Why: "replaced by the profile",
		})
	}
	r, err := m.Config.Rope("")
	if err != nil || !m.DependsOnLength() || m.Config.RopeByLayerType != nil {
		return out
	}
	trained := r.Scaling.OriginalMaxPositionEmbeddings
	value, why := "long factors", "is above"
	if o.MaxModelLen <= trained {
		value, why = "short factors", "is at most"
	}
	if r.Scaling.Type == "dynamic" {
		value = "base for " + Group(int64(max(o.MaxModelLen, trained))) + " tokens"
	}
	return append(out, backend.Choice{
		Name: "rope", Value: r.Scaling.Type + ": " + value, Why: fmt.Sprintf("max model len %s the trained length of %s", why, Group(int64(trained))),
	})
}
