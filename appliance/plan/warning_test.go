package plan_test

import (
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend/cpu"
)

// TestHugePagesOff: a measured machine without huge pages gets a warning with the command that turns
// them on. A machine that has them, one that was not measured, and a backend that does not use them
// get none.
func TestHugePagesOff(t *testing.T) {
	text := "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"huge\"\n\tmodel: source: \"toy\"\n\tmaxModelLen: 64\n\tmemory: kvCache: \"16MiB\"\n}\n"
	for _, c := range []struct {
		name     string
		measured bool
		huge     int64
		cpu      bool
		want     bool
	}{
		{"off", true, 0, true, true}, {"on", true, 2 << 20, true, false}, {"another machine", false, 0, true, false}, {"ref", true, 0, false, false},
	} {
		i := in(profile(t, "huge.cue", text), toy(t), server)
		i.Facts.Measured, i.Facts.HugeBytes, i.Facts.Variants = c.measured, c.huge, []string{"avx2"}
		if c.cpu {
			i.Opener, i.Facts.Backend = cpu.Opener{}, "cpu"
		}
		p := made(t, i)
		got := slices.ContainsFunc(p.Warnings, func(w string) bool {
			return strings.Contains(w, "huge pages are off") && strings.Contains(w, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
		})
		if got != c.want {
			t.Errorf("%s: warned %v: %q", c.name, got, p.Warnings)
		}
	}
}
