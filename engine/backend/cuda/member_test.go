//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"runtime"
	"testing"

	"vapp.dev/engine/backend/cuda/driver"
)

// TestMember: a member has a context and streams, and frees them all.
func TestMember(t *testing.T) {
	emulated(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m, err := openMember(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.in == nil || m.work.Stream == nil {
		t.Errorf("%+v", m)
	}
	if err := errors.Join(m.idle(), m.close(), m.ctx.Close()); err != nil {
		t.Error(err)
	}
	if n := driver.Counted("taken"); n > 0 {
		t.Errorf("%d bytes are still taken", n)
	}
}
