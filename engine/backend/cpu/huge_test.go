package cpu

import (
	"strings"
	"testing"
)

// TestHugeBytes reads two arenas, one of memory and one of a file, among other mappings.
func TestHugeBytes(t *testing.T) {
	const smaps = `00400000-00600000 r-xp 00000000 fe:00 1    /bin/vapp
AnonHugePages:      2048 kB
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
Size:               8192 kB
AnonHugePages:      4096 kB
FilePmdMapped:         0 kB
7f0000800000-7f0001000000 r--s 00200000 fe:00 2    /x.packed
AnonHugePages:         0 kB
FilePmdMapped:      6144 kB
VmFlags: rd mr
7f0002000000-7f0002200000 rw-p 00000000 00:00 0
AnonHugePages:      2048 kB
`
	of := []addresses{{0x7f0000000000, 0x7f0000800000}, {0x7f0000900000, 0x7f0001000000}}
	if n := hugeBytes(strings.NewReader(smaps), of); n != 10<<20 {
		t.Errorf("%d bytes in huge pages, not %d", n, 10<<20)
	}
	if n := hugeBytes(strings.NewReader("x-y\n\nAnonHugePages: many kB\n"), of); n != 0 {
		t.Errorf("%d bytes of nothing", n)
	}
}
