package plan_test

import (
	"testing"

	"vapp.dev/appliance/plan"
)

// TestRefuse: what is planned and does not run is refused at its field; replacing the engine is not.
func TestRefuse(t *testing.T) {
	const head = "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"x\"\n\tmodel: source: \"x\"\n"
	err := plan.Refuse(profile(t, "p.cue", head+"\tmultimodal: limits: video: 1\n}\n"))
	if want := "p.cue:6:2: multimodal.limits.video: plan-only: video: this release plans it and does not run it; leave the field out"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := plan.Refuse(profile(t, "p.cue", head+"\treload: structural: \"swap\"\n}\n")); err != nil {
		t.Error(err)
	}
}
