package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
)

// TestJointWhyNot: the models still fit together with each change that is listed, and a change that takes more than
// what the other model leaves is not.
func TestJointWhyNot(t *testing.T) {
	// KV cache for few sequences each; one of them needs more than the machine has beside the other.
	text := func(name, size string) string {
		return strings.Replace(small(name, fmt.Sprintf("memory: kvCache: %q", size)), "maxNumSeqs: 4", "maxNumSeqs: 512", 1)
	}
	texts := []string{text("a", "2MiB"), text("b", "1GiB")}
	j, err := joint(t, "64GiB", texts...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		left  int64
		helps bool
	}{{64 << 20, true}, {1 << 20, false}} {
		memory := fmt.Sprint(plan.JointTotal(j, 0, 1) + c.left)
		tight, err := joint(t, memory, texts...)
		if err != nil {
			t.Fatal(err)
		}
		answers := tight.WhyNot(plan.Goal{Seqs: 512, Tokens: 64})
		if len(answers) != 2 || !answers[1].Fits || answers[0].Fits || answers[0].Profile != "a" {
			t.Fatalf("%+v", answers)
		}
		helped := false
		for _, change := range answers[0].Changes {
			if change.Path != "memory.kvCache" {
				continue
			}
			helped = true
			changed := strings.Replace(texts[0], "kvCache: "+change.Old, "kvCache: "+change.New, 1)
			again, err := joint(t, memory, changed, texts[1])
			if err != nil || changed == texts[0] || !again.WhyNot(plan.Goal{Seqs: 512, Tokens: 64})[0].Fits {
				t.Errorf("with %v: %v", change, err)
			}
		}
		if helped != c.helps {
			t.Errorf("%d bytes are left: a change helps: %v\n%v", c.left, helped, answers[0])
		}
	}
}
