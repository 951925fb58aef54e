//go:build !cgo

package tokenizer

import (
	"errors"
	"testing"
)

func TestNoCgo(t *testing.T) {
	_, load := Load([]byte("{}"), LoadOptions{})
	_, tmpl := NewTemplate("x", Limits{})
	for _, err := range []error{load, tmpl} {
		var e *Error
		if !errors.As(err, &e) || e.Kind != KindNoCgo {
			t.Errorf("got %v, want KindNoCgo", err)
		}
	}
}
