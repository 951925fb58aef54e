package openai

import (
	"slices"
	"strings"
	"testing"
)

// TestAllowedOnce checks that a long list of allowed tokens loses its duplicates.
func TestAllowedOnce(t *testing.T) {
	r, err := DecodeCompletion([]byte(`{"prompt":"x","allowed_token_ids":[` + strings.Repeat("2,", manyIDs) + `1]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Ask.AllowedTokenIDs; !slices.Equal(got, []int32{1, 2}) || cap(got) > 100 {
		t.Errorf("got %d ids with capacity %d, want 2 with at most 100", len(got), cap(got))
	}
}
