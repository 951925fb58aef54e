//go:build linux && cgo && cuda

package cuda

import (
	"testing"
	"time"
)

// SetHangTimeout sets the time limit for a device's response to d for a test.
func SetHangTimeout(t testing.TB, d time.Duration) {
	before := hangTimeout
	hangTimeout = d
	t.Cleanup(func() { hangTimeout = before })
}
