package host

import (
	"slices"
	"testing"
	"testing/fstest"

	"vapp.dev/engine/backend"
)

// TestLimits reads the limits that are set, and how much of them this process uses.
func TestLimits(t *testing.T) {
	const none = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max data size             unlimited            unlimited            bytes     \n" +
		"Max stack size            8388608              unlimited            bytes     \n" +
		"Max address space         unlimited            unlimited            bytes     \n"
	const both = "Max data size             1048576              unlimited            bytes     \n" +
		"Max stack size            unlimited            unlimited            bytes     \n" +
		"Max address space         4294967296           8589934592           bytes     \n"
	const status = "Name:\tvapp\nVmSize:\t 1048576 kB\nVmData:\t     512 kB\n"
	for _, c := range []struct {
		name, limits string
		want         []backend.ProcessLimit
	}{
		{"none", none, nil},
		{"both", both, []backend.ProcessLimit{{Name: backend.AddressSpace, Limit: 4 << 30, Used: 1 << 30, Stack: systemStack},
			{Name: backend.DataSize, Limit: 1 << 20, Used: 512 << 10, Stack: systemStack}}},
		{"no file", "", nil},
	} {
		got := read(fstest.MapFS{"proc/meminfo": file(meminfo), "proc/self/limits": file(c.limits), "proc/self/status": file(status)}).Limits
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
