//go:build linux && cgo && cuda

package cuda

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
)

// TestGroup: a group has one member with its context and streams, and frees them all. More
// members are rejected.
func TestGroup(t *testing.T) {
	emulated(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, ordinals := range [][]int{nil, {0, 0}} {
		if _, err := openGroup(ordinals...); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "planned only") {
			t.Errorf("%d GPUs: %v", len(ordinals), err)
		}
	}
	g, err := openGroup(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.ranks) != 1 || g.ranks[0].in == nil || g.ranks[0].work.Stream == nil {
		t.Errorf("%+v", g.ranks)
	}
	if err := errors.Join(g.wait(), g.close(), g.release()); err != nil {
		t.Error(err)
	}
	if n := driver.Counted("taken"); n > 0 {
		t.Errorf("%d bytes are still taken", n)
	}
}
