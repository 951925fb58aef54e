//go:build cgo && linux

package cpu

import (
	"errors"
	"os"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
)

// TestOpenRefuses: Open rejects facts of another machine, and arenas larger than any
// machine's memory.
func TestOpenRefuses(t *testing.T) {
	facts, err := Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	other := facts
	other.Variants = []string{amx, avx512bf16, avx512, avx2, i8mm, dotprod, neon, generic}
	for _, v := range other.Variants {
		if slices.Contains(facts.Variants, v) {
			continue
		}
		if _, err := (Opener{}).Open(other, backend.Settings{Variant: v}, backend.Reservation{}); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("variant %s on a machine with %v: %v", v, facts.Variants, err)
		}
	}
	var r backend.Reservation
	r.Arenas[backend.KV] = 1 << 50
	if d, err := (Opener{}).Open(facts, backend.Settings{Threads: 1}, r); err == nil {
		d.Close()
		t.Error("a reservation of 2⁵⁰ bytes was opened")
	}
}

// TestArenaIsResident: mapped memory is resident, and Close frees all of it.
func TestArenaIsResident(t *testing.T) {
	const n = 64 << 20
	before := resident(t)
	a, err := mapArena(backend.KV, n, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{layout: layout{threads: 3, unit: 2 << 20}}
	d.arenas[backend.KV] = a
	if err := d.populate(); err != nil {
		t.Fatal(err)
	}
	if uintptr(a.at)%(2<<20) != 0 {
		t.Errorf("the arena begins at %p", a.at)
	}
	during := resident(t)
	if err := a.unmap(); err != nil {
		t.Fatal(err)
	}
	after := resident(t)
	if during-before < n*9/10 || during-after < n*9/10 {
		t.Errorf("resident bytes: %d before, %d with an arena of %d, %d after", before, during, n, after)
	}
}

// resident returns the process's resident memory in bytes.
func resident(t *testing.T) int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var field, pages int64
	for _, c := range b {
		switch {
		case c == ' ':
			field++
		case field == 1:
			pages = pages*10 + int64(c-'0')
		}
	}
	return pages * int64(os.Getpagesize())
}
