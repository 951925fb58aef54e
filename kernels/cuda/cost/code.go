package cost

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// Code is what the machine code of a kernel for sm_90a has in the loop that does most of its work, and outside of
// it, along the shortest way that multiplies and loads all (TestCode counts it).
type Code struct {
	Unit  Unit
	Ops   float64 // operations of Unit that a warp issues in the loop's body; 0: none
	Loads float64 // bytes that a thread loads from global memory there
	Body  float64 // instructions of the body
	Path  float64 // instructions from the kernel's begin to its end, the body once
}

// Unit is what multiplies.
type Unit byte

// The units.
const (
	Scalar    Unit = 'f' // FFMA
	Sync      Unit = 'h' // HMMA: mma.sync of 16-bit numbers
	Sync8     Unit = 'i' // IMMA: mma.sync of 8-bit numbers
	Warpgroup Unit = 'g' // HGMMA: wgmma of 16-bit numbers
	Group8    Unit = 'q' // QGMMA, IGMMA: wgmma of 8-bit numbers
)

//go:embed code.tsv
var counted string

var codes = sync.OnceValue(func() map[string]Code {
	out := map[string]Code{}
	for line := range strings.Lines(counted) {
		var name, unit string
		var c Code
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscan(line, &name, &unit, &c.Ops, &c.Loads, &c.Body, &c.Path); err != nil {
			panic("cost: code.tsv: " + line) // of this package; TestCode reads it
		}
		c.Unit = Unit(unit[0])
		out[name] = c
	}
	return out
})

// CodeOf returns the counts of a kernel's machine code; ok is false for a kernel that was not counted.
func CodeOf(kernel string) (c Code, ok bool) {
	c, ok = codes()[kernel]
	return c, ok
}
