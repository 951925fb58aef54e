package cuda_test

import (
	"fmt"
	"strings"
	"testing"

	"vapp.dev/kernels/cuda/cudatest"
)

// faultArgs is the argument struct of emulation/faults.cc.
type faultArgs struct{ X uint64 }

// TestEmulationSees checks that the emulation reports faults: it launches kernels with one
// fault each.
func TestEmulationSees(t *testing.T) {
	for _, c := range []struct{ kernel, want string }{
		{"fault_divergent_barrier", "different barriers"},
		{"fault_left_before_barrier", "a thread left"},
		{"fault_lane_left", "left while others wait for it"},
		{"fault_divergent_shuffle", "left while others wait for it"},
		{"fault_beyond", "beyond an allocation of 256 bytes|heap-buffer-overflow"},
		{"fault_unaligned", "not aligned"},
		{"fault_copy_not_waited_for", "did not wait for"},
		{"fault_prefetch_reads", "before the wait for the kernel before|SEGV"},
		{"fault_prefetch_beyond", "a prefetch of memory that is not there"},
		{"fault_prefetch_unaligned", "not in units of 16 bytes"},
		{"no_such_kernel", "no kernel"},
	} {
		t.Run(c.kernel, func(t *testing.T) {
			r := newRig(t)
			a := faultArgs{uint64(up(r, make([]float32, 64)))}
			g := cudatest.Line(1, 64)
			g.Shared = 256
			err := r.Launch(c.kernel, g, cudatest.Struct(&a))
			one, other, _ := strings.Cut(c.want, "|")
			if err == nil || !strings.Contains(err.Error(), one) && (other == "" || !strings.Contains(err.Error(), other)) {
				t.Errorf("%v, want one that says %q", err, c.want)
			}
		})
	}
}

// TestEmulationSchedules checks that a race gives different numbers with another schedule, and
// that correct code does not.
func TestEmulationSchedules(t *testing.T) {
	r := newRig(t)
	results := func(kernel string) map[string]bool {
		seen := map[string]bool{}
		for _, s := range cudatest.Schedules {
			r.Schedule(s)
			x := up(r, make([]float32, 64))
			g := cudatest.Line(1, 64)
			g.Shared = 256
			launch(r, kernel, g, &faultArgs{uint64(x)})
			seen[fmt.Sprint(down[float32](r, x, 64))] = true
		}
		return seen
	}
	if n := len(results("fault_none")); n != 1 {
		t.Errorf("%d results without a race", n)
	}
	if n := len(results("fault_race")); n < 2 {
		t.Error("a race was not seen")
	}
	for got := range results("fault_wait_leaves_one") {
		if !strings.Contains(got, "NaN") {
			t.Error("a copy had arrived before it was waited for")
		}
	}
}

// TestArguments checks that a struct of the wrong size is refused before anything runs.
func TestArguments(t *testing.T) {
	r := newRig(t)
	if err := r.Launch("norm", cudatest.Line(1, 32), make([]byte, 8)); err == nil || !strings.Contains(err.Error(), "arguments of 8 bytes") {
		t.Errorf("error %v, want one about arguments of 8 bytes", err)
	}
}
