package cpu

import (
	"maps"
	"strings"
	"testing"
)

// TestMapsNodeBytes reads the mappings of two arenas, in small and huge pages, among others.
func TestMapsNodeBytes(t *testing.T) {
	const text = `00400000 default file=/bin/vapp mapped=3 N0=3 kernelpagesize_kB=4
7f0000000000 prefer:0 anon=1024 dirty=1024 active=0 N0=1000 N1=24 kernelpagesize_kB=4
7f0000400000 prefer:1 anon=1024 dirty=1024 N1=1024 kernelpagesize_kB=4
7f0000800000 default anon=7 N0=7 kernelpagesize_kB=4
7f0002000000 interleave:0-1 huge anon=2 N0=1 N1=1 kernelpagesize_kB=2048
7f0002400000 interleave:0-1

x y N0=1 kernelpagesize_kB=4
`
	of := []addresses{{0x7f0000000000, 0x7f0000800000}, {0x7f0002000000, 0x7f0002800000}}
	want := map[int]int64{0: 1000<<12 + 2<<20, 1: 1048<<12 + 2<<20}
	if got := nodeBytes(strings.NewReader(text), of); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// FuzzNodeBytes: no text makes a node's bytes negative.
func FuzzNodeBytes(f *testing.F) {
	for _, s := range []string{"", "10 prefer:0 N0=1 kernelpagesize_kB=4\n", "10 N0=-1 N1=99999999999999 N=3 N70000=1 kernelpagesize_kB=9999999999\n", "zz N0=1 kernelpagesize_kB=4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for node, n := range nodeBytes(strings.NewReader(s), []addresses{{0, 1 << 63}}) {
			if n < 0 || node < 0 {
				t.Errorf("%q: %d bytes on node %d", s, n, node)
			}
		}
	})
}
