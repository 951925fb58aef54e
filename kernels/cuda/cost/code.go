package cost

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
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
	Loops float64 // of kernels that do not multiply: instructions of all loops on that way, each once; 0: of the body

	// GroupPath and GroupLoops are Path and Loops of a launch that rounds rows to 8 bits with a scale for each group of 128 columns: one loop
	// finds the largest number of a group and rounds it. With one scale for the row these are two loops. 0: the kernel does not round to 8 bits.
	GroupPath, GroupLoops float64

	// Of kernels whose warps meet in the loop that multiplies alone:

	Registers float64 // of a thread
	Shared    float64 // bytes that a warp and its share of the products move to and from shared memory in the body
	Load      Loading
	// Turn is the body, Ends the shortest way through a piece of work that stores its sums,
	// without gating them or sharing them with other blocks, the body of each of its loops once.
	Turn, Ends []Step
	Gating     Gating
}

// byGroup returns the code of a launch that rounds rows with a scale for each group.
func (c Code) byGroup() Code {
	if c.GroupPath > 0 {
		c.Path, c.Loops = c.GroupPath, c.GroupLoops
	}
	return c
}

// Gating is what a warp of a product has behind its last products instead of the last step of Ends where it gates its sums: instructions around
// the loop over its panels with each loop once, of the body of that loop (0: there is one panel), and of the loop over the pieces of a panel. Zero: the kernel
// has no such loops. The rounding of narrow results by the last of two blocks is not in it.
type Gating struct{ Around, Panel, Piece float64 }

// gated returns the code of a launch that gates its sums; a warp has so many panels with so many pieces each.
func (c Code) gated(panels, pieces float64) Code {
	g := c.Gating
	if g.Piece == 0 || len(c.Ends) == 0 {
		return c
	}
	last := g.Around + (panels-1)*g.Panel + panels*(pieces-1)*g.Piece
	c.Ends = slices.Clone(c.Ends)
	end := &c.Ends[len(c.Ends)-1]
	c.Path += last - end.Instructions
	end.Instructions = last
	return c
}

// Loading is the loop of warps that load for others; zero: all warps of the kernel do the same.
type Loading struct {
	Bytes  float64 // that a thread loads in the body
	Shared float64 // bytes that a warp moves to and from shared memory there
	Body   float64 // its instructions
	Waits  float64 // for what it loaded
	Around float64 // instructions around the loop, for each tile
}

// Step is instructions of a warp, then a group of operations that the units do on their own, or a wait for such groups.
type Step struct {
	Instructions float64
	Meets        float64 // waits for other warps among them: a block's barrier, a phase of a barrier in shared memory
	Ops          float64
	Leaves       int // groups that may be under way behind the wait; −1: there is no wait
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
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, c, err := codeOf(line)
		if err != nil {
			panic("cost: code.tsv: " + line) // of this package; TestCode reads it
		}
		out[name] = c
	}
	return out
})

// CodeOf returns the counts of a kernel's machine code; ok is false for a kernel that was not counted.
func CodeOf(kernel string) (c Code, ok bool) {
	c, ok = codes()[kernel]
	return c, ok
}

// codeOf reads a row as rowOf writes it.
func codeOf(row string) (name string, c Code, err error) {
	var unit, load, turn, ends, gating string
	if _, err = fmt.Sscan(row, &name, &unit, &c.Ops, &c.Loads, &c.Body, &c.Path); err != nil {
		return name, c, err
	}
	c.Unit = Unit(unit[0])
	switch fields := strings.Fields(row); len(fields) {
	case 6:
		return name, c, nil
	case 7:
		_, err = fmt.Sscan(fields[6], &c.Loops)
		return name, c, err
	case 9:
		_, err = fmt.Sscan(strings.Join(fields[6:], " "), &c.Loops, &c.GroupPath, &c.GroupLoops)
		return name, c, err
	}
	if _, err = fmt.Sscan(row, &name, &unit, &c.Ops, &c.Loads, &c.Body, &c.Path, &c.Registers, &c.Shared, &load, &turn, &ends, &gating); err != nil {
		return name, c, err
	}
	if g := &c.Gating; gating != "-" {
		if _, err = fmt.Sscanf(gating, "%g:%g:%g", &g.Around, &g.Panel, &g.Piece); err != nil {
			return name, c, err
		}
	}
	if l := &c.Load; load != "-" {
		if _, err = fmt.Sscanf(load, "%g:%g:%g:%g:%g", &l.Bytes, &l.Shared, &l.Body, &l.Waits, &l.Around); err != nil {
			return name, c, err
		}
	}
	if c.Turn, err = stepsOf(turn, c.Ops); err == nil {
		c.Ends, err = stepsOf(ends, c.Ops)
	}
	return name, c, err
}

// rowOf writes the counts of a kernel as a row of code.tsv.
func rowOf(name string, c Code) string {
	row := fmt.Sprintf("%s %c %g %g %g %g", name, c.Unit, c.Ops, c.Loads, c.Body, c.Path)
	switch {
	case c.GroupPath > 0:
		return row + fmt.Sprintf(" %g %g %g", c.Loops, c.GroupPath, c.GroupLoops)
	case c.Loops > 0:
		return row + fmt.Sprintf(" %g", c.Loops)
	case len(c.Turn) == 0:
		return row
	}
	load := "-"
	if l := c.Load; l.Bytes > 0 {
		load = fmt.Sprintf("%g:%g:%g:%g:%g", l.Bytes, l.Shared, l.Body, l.Waits, l.Around)
	}
	gating := "-"
	if g := c.Gating; g.Piece > 0 {
		gating = fmt.Sprintf("%g:%g:%g", g.Around, g.Panel, g.Piece)
	}
	return row + fmt.Sprintf(" %g %g %s %s %s %s", c.Registers, c.Shared, load, stepsText(c.Turn, c.Ops), stepsText(c.Ends, c.Ops), gating)
}

// grouped reports whether warpgroups multiply, on their own.
func (c Code) grouped() bool { return c.Unit == Warpgroup || c.Unit == Group8 }

// stepsOf reads steps: instructions, "b" for each wait for other warps, and "/4" for a group of a fourth of the body's operations or "w1"
// for a wait that leaves one group.
func stepsOf(text string, ops float64) (out []Step, err error) {
	for one := range strings.SplitSeq(text, ",") {
		x := Step{Leaves: -1}
		part := 0.0
		kind := strings.IndexAny(one, "/w")
		head := one
		if kind >= 0 {
			head = one[:kind]
		}
		count := strings.TrimRight(head, "b")
		x.Meets = float64(len(head) - len(count))
		if x.Instructions, err = strconv.ParseFloat(count, 64); err != nil {
			return nil, err
		}
		switch {
		case kind < 0:
		case one[kind] == 'w':
			_, err = fmt.Sscanf(one[kind:], "w%d", &x.Leaves)
		default:
			if _, err = fmt.Sscanf(one[kind:], "/%g", &part); err == nil {
				x.Ops = ops / part
			}
		}
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// stepsText writes steps as one word.
func stepsText(steps []Step, ops float64) string {
	out := []string{}
	for _, x := range steps {
		one := fmt.Sprintf("%g%s", x.Instructions, strings.Repeat("b", int(x.Meets)))
		if x.Ops > 0 {
			one += fmt.Sprintf("/%g", ops/x.Ops)
		}
		if x.Leaves >= 0 {
			one += fmt.Sprintf("w%d", x.Leaves)
		}
		out = append(out, one)
	}
	return strings.Join(out, ",")
}
