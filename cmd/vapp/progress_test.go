package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/speed"
)

// TestSparsely checks that progress is shown at once, then not sooner than betweenLines, and at its
// end.
func TestSparsely(t *testing.T) {
	now := time.Unix(1, 0)
	var shown []int64
	show := sparsely(func() time.Time { return now }, func(_ engine.Progress, percent int64) { shown = append(shown, percent) })
	for _, step := range []struct {
		after time.Duration
		done  int64
	}{{0, 1}, {time.Second, 15}, {time.Second, 19}, {time.Millisecond, 25}, {2 * time.Second, 26}, {2 * time.Second, 29}, {0, 99}, {0, 100}, {9 * time.Second, 100}} {
		now = now.Add(step.after)
		show(engine.Progress{Done: step.done, Total: 100})
	}
	if want := []int64{0, 10, 20, 90, 100}; !slices.Equal(shown, want) {
		t.Errorf("shown %v, want %v", shown, want)
	}
}

// TestLastCache adds the caches of four processors up, of which two share one.
func TestLastCache(t *testing.T) {
	root := fstest.MapFS{}
	for i, sharing := range []string{"0-1", "0-1", "2", "3"} {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/cache/index3/", i)
		root[dir+"size"], root[dir+"shared_cpu_list"] = &fstest.MapFile{Data: []byte("32768K\n")}, &fstest.MapFile{Data: []byte(sharing + "\n")}
	}
	if got := lastCache(root); got != 96<<20 {
		t.Errorf("%d bytes", got)
	}
	if got := lastCache(fstest.MapFS{}); got != 0 {
		t.Errorf("%d bytes without a cache", got)
	}
}

// TestWarnDisturbed: a kernel that reads faster than memory means that the machine was not quiet.
func TestWarnDisturbed(t *testing.T) {
	for read, want := range map[float64]string{1e9: "", 0.9e9: "", 0.5e9: "was not quiet: linear.avx2.bf16 reads at 200 % of the rate of memory"} {
		var out strings.Builder
		warnDisturbed(&out, &speed.Rates{Read: read, Linear: []speed.Linear{{Kernel: "linear.avx2.bf16", Bytes: 2, Rows: speed.Curve{X: []float64{1}, Y: []float64{2e-9}}}}})
		if got := out.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%g: %q", read, got)
		}
	}
}
