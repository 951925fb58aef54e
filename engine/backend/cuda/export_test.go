//go:build linux && cgo && cuda

package cuda

import (
	"testing"
	"time"
	"unsafe"

	"vapp.dev/engine/backend"
)

// SetCopyBytes sets the size of the pieces that weights move in, for a test.
func SetCopyBytes(t testing.TB, n int64) {
	before := copyBytes
	copyBytes = n
	t.Cleanup(func() { copyBytes = before })
}

// WeightBytes returns a copy of weights that are on the device; nil if it fails.
func WeightBytes(w backend.PackedWeights) []byte {
	m := w.(weights).of
	b := make([]byte, m.bytes)
	err := m.ctx.Do(func() error {
		s, err := m.ctx.Stream()
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.FromDevice(unsafe.Pointer(&b[0]), m.at, m.bytes); err != nil {
			return err
		}
		return s.Wait(hangTimeout)
	})
	if err != nil {
		return nil
	}
	return b
}

// SetHangTimeout sets the time limit for a device's response to d for a test.
func SetHangTimeout(t testing.TB, d time.Duration) {
	before := hangTimeout
	hangTimeout = d
	t.Cleanup(func() { hangTimeout = before })
}

// SetMostTiming limits the timing of cuBLASLt's algorithms at a start for a test.
func SetMostTiming(t testing.TB, d time.Duration) {
	before := mostTiming
	mostTiming = d
	t.Cleanup(func() { mostTiming = before })
}

// ForgetLibraries makes Probe try a library that it has tried.
func ForgetLibraries() { tried.Clear() }

// SetStackBytes sets the largest stack of the kernels of every architecture for a test.
func SetStackBytes(t testing.TB, n int) {
	before := stackOf
	stackOf = func(string) (int, string) { return n, "a kernel" }
	t.Cleanup(func() { stackOf = before })
}
