package openai

import (
	"slices"
	"strings"
	"testing"
)

// TestAllowedOnce: a list of millions of allowed tokens is reduced to the tokens in it.
func TestAllowedOnce(t *testing.T) {
	r, err := DecodeCompletion([]byte(`{"prompt":"x","allowed_token_ids":[` + strings.Repeat("2,", manyIDs) + `1]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Ask.AllowedTokenIDs; !slices.Equal(got, []int32{1, 2}) || cap(got) > 100 {
		t.Errorf("%d ids, capacity %d", len(got), cap(got))
	}
}
