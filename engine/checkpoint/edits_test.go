package checkpoint

import (
	"encoding/json"
	"strings"
	"testing"
)

// edit parses the small config with edits.
func edit(t *testing.T, overrides, rope string) (Config, error) {
	t.Helper()
	b, err := json.Marshal(small())
	if err != nil {
		t.Fatal(err)
	}
	var e Edits
	if overrides != "" {
		e.Overrides = json.RawMessage(overrides)
	}
	if rope != "" {
		e.Rope = json.RawMessage(rope)
	}
	return e.Parse("dir/config.json", b)
}

// TestEdits checks what an edited config contains and which edits it lists.
func TestEdits(t *testing.T) {
	for name, c := range map[string]struct {
		overrides, rope string
		longest         int
		theta           float64
		edited          string
	}{
		"none":        {"", "", 512, 10000, ""},
		"theta":       {`{"rope_theta": 5e5}`, "", 512, 5e5, "rope_theta 10000 5e5"},
		"removed":     {`{"rope_theta": null}`, "", 512, 10000, "rope_theta 10000 "},
		"yarn":        {`{"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512}}`, "", 2048, 10000, `rope_scaling  {"rope_type":"yarn","factor":4,"original_max_position_embeddings":512}`},
		"linear":      {`{"rope_scaling": {"type": "linear", "factor": 2}}`, "", 1024, 10000, `rope_scaling  {"type":"linear","factor":2}`},
		"parameters":  {`{"rope_parameters": {"rope_type": "default", "rope_theta": 7}}`, "", 512, 7, `rope_parameters  {"rope_type":"default","rope_theta":7}`},
		"rope theta":  {"", `{"rope_theta": 5e5}`, 512, 5e5, "rope_theta 10000 500000"},
		"rope yarn":   {"", `{"rope_type": "yarn", "factor": 4}`, 2048, 10000, `rope_scaling {"rope_type":"default"} {"factor":4,"original_max_position_embeddings":512,"rope_type":"yarn"}, max_position_embeddings 512 2048`},
		"rope linear": {"", `{"rope_type": "linear", "factor": 2}`, 1024, 10000, `rope_scaling {"rope_type":"default"} {"factor":2,"original_max_position_embeddings":512,"rope_type":"linear"}, max_position_embeddings 512 1024`},
		"both":        {`{"max_position_embeddings": 256}`, `{"rope_type": "dynamic", "factor": 3}`, 768, 10000, `max_position_embeddings 512 256, rope_scaling {"rope_type":"default"} {"factor":3,"original_max_position_embeddings":256,"rope_type":"dynamic"}, max_position_embeddings 256 768`},
		"near":        {`{"rope_thetta": 5}`, "", 512, 10000, "rope_thetta  5?rope_theta"},
	} {
		got, err := edit(t, c.overrides, c.rope)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var list []string
		for _, e := range got.Edited {
			s := e.Field + " " + e.Old + " " + e.New
			if e.Near != "" {
				s += "?" + e.Near
			}
			list = append(list, s)
		}
		if s := strings.Join(list, ", "); s != c.edited || got.MaxPositionEmbeddings != c.longest || got.RopeTheta != c.theta {
			t.Errorf("%s: %d tokens, theta %v, edited\n got %s\nwant %s", name, got.MaxPositionEmbeddings, got.RopeTheta, s, c.edited)
		}
	}
}

// TestEditsNested checks that text_config is merged, that its values reach the reader through Raw,
// too, and that a field of text_config that is set outside it is noticed.
func TestEditsNested(t *testing.T) {
	e := Edits{Overrides: json.RawMessage(`{"text_config": {"max_position_embeddings": 4096, "new_field": [1]}, "vocab_size": 7}`)}
	c, err := e.Parse("c", readConfig(t, "gemma-4-26b-a4b"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Section("")
	if err != nil || !s.Has("new_field") || c.MaxPositionEmbeddings != 4096 || c.VocabSize != 262144 {
		t.Errorf("%v, %d tokens, %d words", err, c.MaxPositionEmbeddings, c.VocabSize)
	}
	if n := len(c.Edited); n != 3 || c.Edited[0].Field != "text_config.max_position_embeddings" || c.Edited[2].Near != "text_config.vocab_size" {
		t.Errorf("%+v", c.Edited)
	}
	if _, err := (Edits{Rope: json.RawMessage(`{"rope_type": "yarn", "factor": 2}`)}).Parse("c", readConfig(t, "gemma-4-26b-a4b")); err == nil || !strings.Contains(err.Error(), "full_attention, sliding_attention") {
		t.Errorf("a rope for layers that have two: %v", err)
	}
}

func TestEditsRefused(t *testing.T) {
	for _, c := range []struct{ overrides, rope, file, field string }{
		{`{"hidden_size": -1}`, "", "dir/config.json", "hidden_size"},
		{`{"rope_scaling": {"rope_type": "linear"}}`, "", "dir/config.json", "rope_scaling.factor"},
		{`[1]`, "", "model.overrides", ""},
		{"", `{"rope_type": "yarn"}`, "model.rope", "factor"},
		{"", `{"rope_type": "yarn", "factor": 0.5}`, "model.rope", "factor"},
		{"", `{"rope_theta": "a"}`, "model.rope", "rope_theta"},
	} {
		_, err := edit(t, c.overrides, c.rope)
		wantError(t, err, c.file, c.field)
	}
}

func FuzzEdits(f *testing.F) {
	f.Add(`{"rope_scaling": {"rope_type": "yarn", "factor": 4}, "text_config": null}`, `{"rope_type": "longrope", "short_factor": [1], "long_factor": [2]}`)
	f.Add(`{"a_config": {"b_config": {"c": 1}}}`, `{"rope_theta": 3}`)
	f.Add(`{"rope_scaling": {"rope_type": "linear", "factor": 1e-6}}`, ``)
	f.Fuzz(func(t *testing.T, overrides, rope string) {
		c, err := edit(t, overrides, rope)
		if err != nil {
			wantErrorType(t, err)
			return
		}
		if c.MaxPositionEmbeddings < 1 || c.MaxPositionEmbeddings > maxPositions {
			t.Errorf("%d tokens", c.MaxPositionEmbeddings)
		}
		if r, err := c.Rope(""); err == nil {
			if a, err := r.Angles(c.HeadDim); err != nil {
				wantErrorType(t, err)
			} else if !finite(float64(a.Scale)) {
				t.Errorf("scale %v", a.Scale)
			}
		}
	})
}
