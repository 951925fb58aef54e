//go:build linux && cgo && cuda

package cuda

import (
	"testing"
	"time"
)

// Patience sets the time limit for a device's response to d for a test.
func Patience(t testing.TB, d time.Duration) {
	before := patience
	patience = d
	t.Cleanup(func() { patience = before })
}
