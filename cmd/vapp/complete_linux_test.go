package main

import (
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestCompleteItems completes the items of a profile's plan.
func TestCompleteItems(t *testing.T) {
	was := itemsPatience
	t.Cleanup(func() { itemsPatience = was })
	itemsPatience = time.Minute
	out, how := completeItems(newPlan(), []string{toyProfile(t, "")}, "weights.")
	if !slices.Contains(out, "weights.attention") || how != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("%q, %v", out, how)
	}
}

// TestCompleteFieldPath completes a level of fields, a field, and its values with and without quotes.
func TestCompleteFieldPath(t *testing.T) {
	for typed, want := range map[string]string{
		"serve.po": "serve.port=\tan integer >= 0 and <= 65535", "ser": "serve.", "log.level=i": "log.level=info", `log.level="i`: `log.level="info"`,
		"serve.accessLog=": "serve.accessLog=false",
	} {
		if out, _ := completeFieldPath(nil, nil, typed); !slices.Contains(out, want) {
			t.Errorf("%q: %q, want %q", typed, out, want)
		}
	}
	if out, _ := completeFieldPath(nil, nil, "nothing.like=x"); len(out) > 0 {
		t.Errorf("an unknown field: %q", out)
	}
}
