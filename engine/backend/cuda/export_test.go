//go:build linux && cgo && cuda

package cuda

import (
	"testing"
	"time"
)

// Patience has devices be given up after d, for a test.
func Patience(t testing.TB, d time.Duration) {
	before := patience
	patience = d
	t.Cleanup(func() { patience = before })
}
