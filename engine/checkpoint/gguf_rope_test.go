package checkpoint

import (
	"testing"
)

// TestLinearRopeGGUF checks linear scaling of files with and without a type, under its key of today and the
// one of the first files, as llama.cpp reads them.
func TestLinearRopeGGUF(t *testing.T) {
	for _, c := range []struct {
		keys   map[string]any
		factor float64 // 0: no scaling
	}{
		{map[string]any{}, 0},
		{map[string]any{"scaling.factor": float32(1)}, 0},
		{map[string]any{"scaling.factor": float32(4)}, 4},
		{map[string]any{"scale_linear": float32(2)}, 2},
		{map[string]any{"scaling.type": "linear", "scale_linear": float32(2)}, 2},
		{map[string]any{"scaling.type": "linear", "scaling.factor": float32(4), "scale_linear": float32(2)}, 4},
		{map[string]any{"scaling.type": "none", "scaling.factor": float32(4)}, 0},
	} {
		m := familyToy("llama", nil)
		for key, value := range c.keys {
			m.set("llama.rope."+key, value)
		}
		s := opened(t, m).Config().RopeScaling
		if s.Factor != c.factor || (s.Type == "linear") != (c.factor != 0) {
			t.Errorf("%v: %+v, want the factor %v", c.keys, s, c.factor)
		}
	}
	_, err := openBytes("m.gguf", familyToy("llama", nil).set("llama.rope.scaling.type", "linear").bytes())
	wantError(t, err, "m.gguf", "llama.rope.scaling.factor")
	_, err = openBytes("m.gguf", familyToy("llama", nil).set("llama.rope.scale_linear", float32(-1)).bytes())
	wantError(t, err, "m.gguf", "llama.rope.scale_linear")
}
