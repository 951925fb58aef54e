package plan_test

import (
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/ref"
)

// TestWhyNotImages applies what images need: all of it makes them fit as the answer says, and without
// any one of it just that one is still needed.
func TestWhyNotImages(t *testing.T) {
	for _, c := range []struct {
		model, text string
		goal        plan.Goal
		needed      int
	}{
		{"google/gemma-4-26B-A4B-it", `scheduler: {maxNumSeqs: 4, maxNumBatchedTokens: 512}, multimodal: limits: image: 4`, plan.Goal{Seqs: 1, Images: 8, ImageTokens: 1000}, 4},
		{"Qwen/Qwen3.5-27B-FP8", `scheduler: {maxNumSeqs: 4, maxNumBatchedTokens: 512}, multimodal: {limits: image: 4, image: maxPixels: 65536}`, plan.Goal{Seqs: 5, Tokens: 8192, Images: 7, ImageTokens: 900}, 3},
	} {
		m := catalogued(t, c.model)
		p := profile(t, "profile.cue", `import "vapp.dev/schema"

schema.#Profile & {name: "sees", model: source: "`+c.model+`", maxModelLen: 8000 + 192*`+map[bool]string{true: "1", false: "0"}[c.goal.Tokens > 0]+`, memory: kvCache: "6GiB", `+c.text+`}`)
		i := in(p, m, server)
		i.Opener, i.Facts.TotalBytes = ref.Opener{}, 1<<40
		i, err := built(i)
		if err != nil {
			t.Fatal(err)
		}
		a, err := plan.WhyNot(i, c.goal)
		if err != nil || a.Fits || a.Have != 0 || len(a.Needed) != c.needed || a.HaveThen < c.goal.Seqs {
			t.Fatalf("%s: %v: %+v", c.model, err, a)
		}
		for left := range len(a.Needed) + 1 {
			j := i
			for k := range a.Needed {
				n := a.Needed[(k+left)%len(a.Needed)] // in another order each time
				if k < len(a.Needed)-1 || left == len(a.Needed) {
					j.Profile = applied(t, j.Profile, n)
				}
			}
			b, err := plan.WhyNot(j, c.goal)
			switch {
			case left == len(a.Needed):
				if err != nil || !b.Fits || b.Have != a.HaveThen || len(b.Needed) > 0 {
					t.Errorf("%s: with all that is needed: %v: %+v", c.model, err, b)
				}
			case err == nil && (b.Fits || len(b.Needed) != 1 || b.Needed[0].Path != a.Needed[(left+len(a.Needed)-1)%len(a.Needed)].Path):
				t.Errorf("%s: all but one: %+v", c.model, b)
			case err != nil && a.Needed[(left+len(a.Needed)-1)%len(a.Needed)].Path != "scheduler.maxNumBatchedTokens":
				t.Errorf("%s: all but one: %v", c.model, err) // a plan refuses images larger than a step
			}
		}
	}
}
