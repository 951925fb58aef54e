//go:build cgo

package cpu

import (
	"os"

	"vapp.dev/engine/backend"
)

// Huge returns how many bytes of the arenas the system has put in huge pages, and the total.
func (d *device) Huge() (huge, of int64) {
	var at []addresses
	for a, m := range d.arenas {
		if m.bytes > 0 && backend.Arena(a) != backend.Swap {
			at = append(at, addresses{uint64(m.address(0)), uint64(m.address(m.bytes))})
			of += m.bytes
		}
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, of
	}
	defer f.Close()
	return hugeBytes(f, at), of
}
