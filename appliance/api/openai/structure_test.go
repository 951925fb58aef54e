package openai

import (
	"strings"
	"testing"
)

// TestChoicesOnce checks that a long list of choices loses its duplicates.
func TestChoicesOnce(t *testing.T) {
	body := `{"messages":[{"role":"user","content":"x"}],"structured_outputs":{"choice":[` + strings.Repeat(`"yes",`, 30000) + `"no","yes"]}}`
	r, err := DecodeChat([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Ask.Structure.Source; got != `["yes","no"]` {
		t.Errorf("choices %.40s", got)
	}
}
