package backend

import (
	"fmt"

	"vapp.dev/kernels"
)

// Adapt adds low-rank adapters (LoRA) to what a Linear computed. A row of an adapter's slot s gets
// Y += B[s]·(A[s]·X), module by module; rows without an adapter keep their bits. The scale of an
// adapter is part of B. A row's result does not depend on the other rows.
//
// A module is one matrix of the checkpoint; a Linear of joined matrices (Q, K and V) has several,
// which share X. Module m has the columns of Y from Ends[m−1] to Ends[m]−1.
type Adapt struct {
	X   Value // [rows,in]: what the Linear reads. Rows are tokens, a chunk of them, or sampled rows
	Mid Value // [rows,Modules·Rank]: A·X; rows without an adapter are undefined
	Y   Value // [rows,out]
	Adapters
}

// Adapters are the weights of low-rank adapters for the results of one Linear. They have a matrix
// for each slot. Unused slots, and ranks that an adapter lacks, hold zeros.
type Adapters struct {
	A       WeightID // [slots·Modules·Rank, in], Lookup; 0 in the zero value, where Rank is 0
	B       WeightID // [slots·Rank, out], Lookup: the transposes of the modules' matrices, side by side
	Rank    int      // 0: no adapters
	Modules int
	Ends    [MaxModules]int // for each module, the end of its columns in Y
}

// MaxModules is the most matrices that a Linear with adapters joins.
const MaxModules = 3

func (Adapt) opName() string { return "adapt" }

// Interrupter is a Device in a Group that can end a launch early.
type Interrupter interface {
	// Interrupt makes the running launches and all later ones fail with err, within a part of a
	// step. Any goroutine may call it; the first error stays.
	Interrupt(err error)
}

// AdapterWriter is a Device that writes the adapters' weights. Optional, like the interfaces of
// optional.go: a Device whose programs have no Adapt does without it.
type AdapterWriter interface {
	// WriteRows stores rows from row0 on of weight i, a Lookup weight, in its stored format. It
	// waits for all launches first. It returns an error if the rows are not the weight's.
	WriteRows(i WeightID, row0 int, data []byte) error
}

// adapt checks an Adapt.
func (c *checker) adapt(o Adapt) {
	y, f32 := c.like(o.Y), kernels.F32
	c.require(y.Rows != PerSeq, "rows are sequences, not tokens or sampled rows")
	c.require(o.Rank > 0 && o.Modules > 0 && o.Modules <= MaxModules, "%d modules of rank %d", o.Modules, o.Rank)
	c.value("Y", o.Y, f32, y.Rows, 0)
	x := c.value("X", o.X, f32, y.Rows, 0)
	c.require(o.X != o.Y, "X is Y")
	if o.Rank <= 0 || o.Modules <= 0 || o.Modules > MaxModules {
		return
	}
	at := 0
	for _, end := range o.Ends[:o.Modules] {
		c.require(end > at, "modules end at columns %v", o.Ends)
		at = end
	}
	c.require(at == y.Cols, "modules end at columns %v of %d", o.Ends, y.Cols)
	c.value("Mid", o.Mid, f32, y.Rows, o.Modules*o.Rank)
	a := c.weight("A", o.A, Lookup, 0, x.Cols)
	b := c.weight("B", o.B, Lookup, 0, y.Cols)
	slots := c.p.AdapterSlots
	c.require(a.Rows == slots*o.Modules*o.Rank && b.Rows == slots*o.Rank, "weights of %d and %d rows for %d slots", a.Rows, b.Rows, slots)
	c.require(a.Stored() == b.Stored() && PlainFloats(a.Stored()), "weights in %v and %v", a.Stored(), b.Stored())
}

// PlainFloats reports whether f stores each number as one float of 16 or 32 bits.
func PlainFloats(f kernels.Format) bool {
	return f == kernels.F32 || f == kernels.F16 || f == kernels.BF16
}

// ChunkStart returns the first token of rows of kind r, if they are tokens.
func (b Bucket) ChunkStart(r Rows) int {
	if r < perChunk {
		return 0
	}
	return int(r-perChunk) * b.Chunk
}

// checkAdapters checks the slots of the tokens.
func (s *Step) checkAdapters(p *Program, b Binding) error {
	if p.AdapterSlots == 0 {
		return nil
	}
	if len(s.Adapters) < b.Tokens {
		return stepError("Adapters", "has %d rows of %d", len(s.Adapters), b.Tokens)
	}
	for t, slot := range s.Adapters[:b.Tokens] {
		if slot < -1 || int(slot) >= p.AdapterSlots {
			return stepError("Adapters", "row %d has slot %d of %d", t, slot, p.AdapterSlots)
		}
	}
	return nil
}

// RowsAt returns the offset of row0 of an unloaded weight, whose rows are stored as they are. It
// returns an error unless data holds whole rows from there on, inside the weight.
func (w WeightSpec) RowsAt(row0 int, data []byte) (int64, error) {
	size := w.Stored().Bytes(int64(w.Cols))
	n := int64(len(data))
	if !w.Unloaded || w.Use != Lookup || row0 < 0 || size <= 0 || n%size != 0 || int64(row0) > int64(w.Rows)-n/size {
		return 0, fmt.Errorf("%d bytes from row %d on are no rows of weight %s, %d×%d %v", n, row0, w.Name, w.Rows, w.Cols, w.Stored())
	}
	return int64(row0) * size, nil
}
