//go:build !linux || !cgo || !cuda

package cuda

import (
	"errors"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
)

// TestNotBuilt: a build without the native half can plan for GPUs by name, and Open fails
// with the reason.
func TestNotBuilt(t *testing.T) {
	if _, err := (Opener{}).Probe(); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "--gpu") {
		t.Error(err)
	}
	if _, err := (Opener{}).Open(backend.Facts{}, backend.Settings{}, backend.Reservation{}); !errors.Is(err, backend.ErrUnsupported) {
		t.Error(err)
	}
}
