package backend

import (
	"fmt"
	"slices"

	"vapp.dev/kernels"
)

// ProgramError names an op of a program that does not match its operands.
type ProgramError struct {
	Program string
	Op      int // index into Ops
	Name    string
	Why     string
}

func (e *ProgramError) Error() string {
	return fmt.Sprintf("program %s: op %d, %s: %s", e.Program, e.Op, e.Name, e.Why)
}

// Check compares every op with the shapes and formats of its values, weights
// and classes. A program that is valid at the bucket's size is valid at every launch.
// Backends call Check in Compile; a Device may rely on it afterwards. Values that an
// ActivationLayout may store in 16 bits are in any of these formats. The error is a
// *ProgramError.
func (p *Program) Check() error { return p.check(true) }

// check compares every op with its operands. Without halves, activations are F32.
func (p *Program) check(halves bool) error {
	if b := p.Bucket; b.Chunk < 0 || b.Chunk%ValueAlign != 0 || b.chunks() > MaxChunks {
		return &ProgramError{p.Name, 0, "", fmt.Sprintf("%d tokens in chunks of %d; there are at most %d, of a multiple of %d", b.Tokens, b.Chunk, MaxChunks, ValueAlign)}
	}
	for i, op := range p.Ops {
		c := checker{p: p, halves: halves}
		c.op(op)
		if c.why != "" {
			return &ProgramError{p.Name, i, OpName(op), c.why}
		}
	}
	return nil
}

// checker keeps the first error of one op.
type checker struct {
	p      *Program
	halves bool // activations may have 16 bits
	why    string
}

func (c *checker) fail(format string, args ...any) {
	if c.why == "" {
		c.why = fmt.Sprintf(format, args...)
	}
}

func (c *checker) require(ok bool, format string, args ...any) {
	if !ok {
		c.fail(format, args...)
	}
}

// value checks an operand and returns it; cols 0 accepts any width.
func (c *checker) value(name string, v Value, f kernels.Format, rows Rows, cols int) ValueInfo {
	if v < 0 || int(v) >= len(c.p.Values) {
		c.fail("%s is value %d of %d", name, v, len(c.p.Values))
		return ValueInfo{}
	}
	in := c.p.Values[v]
	need := in.Format.Bytes(int64(c.p.Rows(in.Rows)) * int64(in.Cols))
	inside := in.Rows < perChunk+Rows(c.p.Bucket.chunks()) && in.Offset >= 0 && in.Offset%ValueAlign == 0 && in.Bytes >= need && in.Offset+in.Bytes <= c.p.Scratch
	wide := cols == 0 && in.Cols > 0 || in.Cols == cols
	if inside && in.Format == f && in.Rows == rows && wide {
		return in // fast path: formatting the messages below took a third of a planner's search
	}
	c.require(inside, "%s (%s) is outside of the scratch of %d bytes", name, in.Name, c.p.Scratch)
	c.require(in.Format == f, "%s (%s) is %v, not %v", name, in.Name, in.Format, f)
	c.require(in.Rows == rows, "%s (%s) has rows of another kind", name, in.Name)
	c.require(wide, "%s (%s) has %d columns, not %d", name, in.Name, in.Cols, cols)
	return in
}

// activation checks an operand that is F32, or in one of these formats of 16 bits.
func (c *checker) activation(name string, v Value, rows Rows, cols int, halves ...kernels.Format) ValueInfo {
	f := c.like(v).Format
	if !c.halves || !slices.Contains(halves, f) {
		f = kernels.F32
	}
	return c.value(name, v, f, rows, cols)
}

// like returns the info of a value whose format, rows and columns other operands must match.
func (c *checker) like(v Value) ValueInfo {
	if v < 0 || int(v) >= len(c.p.Values) {
		return ValueInfo{Format: kernels.F32, Cols: 1}
	}
	return c.p.Values[v]
}

// weight checks a weight and returns it; rows or cols 0 accepts any number.
func (c *checker) weight(name string, w WeightID, use Use, rows, cols int) WeightSpec {
	if w < 0 || int(w) >= len(c.p.Weights) {
		c.fail("%s is weight %d of %d", name, w, len(c.p.Weights))
		return WeightSpec{}
	}
	s := c.p.Weights[w]
	c.require(s.Use&use != 0, "%s (%s) is packed for another use", name, s.Name)
	c.require((rows == 0 || s.Rows == rows) && (cols == 0 || s.Cols == cols), "%s (%s) is %d×%d, not %d×%d", name, s.Name, s.Rows, s.Cols, rows, cols)
	return s
}

func (c *checker) class(i, layer int) KVClass {
	if i < 0 || i >= len(c.p.Classes) {
		c.fail("class %d of %d", i, len(c.p.Classes))
		return KVClass{}
	}
	k := c.p.Classes[i]
	c.require(layer >= 0 && layer < max(k.Layers, 1), "layer %d of the %d of class %s", layer, k.Layers, k.Name)
	return k
}

func (c *checker) heads(heads, kv, dim int) {
	c.require(heads > 0 && kv > 0 && dim > 0 && heads%kv == 0, "%d heads, %d key/value heads of %d", heads, kv, dim)
}
