package backend

import (
	"fmt"

	"vapp.dev/kernels"
)

// Rows is a symbolic number of rows. Each Launch binds it to a count.
type Rows uint8

// The symbols.
const (
	PerToken  Rows = iota // T rows
	PerSample             // L rows
	PerSeq                // S rows
	perChunk              // rows of the first chunk of tokens
)

// MaxChunks is the most chunks that a program may split its tokens into.
const MaxChunks = 16

// Value is an activation: an index into Program.Values.
type Value int32

// NoValue marks an absent operand.
const NoValue Value = -1

// ValueInfo is a value's shape and its fixed place in the scratch arena.
type ValueInfo struct {
	Name   string
	Format kernels.Format
	Rows   Rows
	Cols   int
	Offset int64 // bytes into Scratch, a multiple of ValueAlign
	Bytes  int64 // at the bucket's largest row count
	Freed  int   // ops recorded when the value was freed; later ops do not read it. 0: unknown
}

// ValueAlign is the alignment of values in scratch, in bytes.
const ValueAlign = 64

// Bucket is the largest value of each row symbol a Program is recorded for.
type Bucket struct {
	Tokens, Seqs, Samples int
	// Chunk is how many tokens a gated MLP computes at a time, which bounds the size of
	// its intermediate values; a multiple of ValueAlign. 0: all.
	Chunk int
}

// Rows returns the count of a row symbol; in a bucket it is the maximum.
func (b Bucket) Rows(r Rows) int {
	switch {
	case r == PerSample:
		return b.Samples
	case r == PerSeq:
		return b.Seqs
	case r >= perChunk:
		return max(0, min(b.Chunk, b.Tokens-int(r-perChunk)*b.Chunk))
	}
	return b.Tokens
}

// chunks returns the number of chunks; 1 if tokens are not split.
func (b Bucket) chunks() int {
	if b.Chunk == 0 {
		return 1
	}
	return max(1, (b.Tokens+b.Chunk-1)/b.Chunk)
}

// Program is a recorded forward pass: ops over values at fixed offsets.
type Program struct {
	Name    string
	Bucket  Bucket
	Ops     []Op
	Values  []ValueInfo
	Scratch int64 // bytes: the peak of live values
	Weights []WeightSpec
	Classes []KVClass
	Vocab   int
	// Axes is how many positions a token has in Step.MRopePositions (time, row and column in
	// multimodal models); 0: only Step.Positions.
	Axes int
	// Lookahead is the largest DraftPosition.By of the ops; 0: there are none.
	Lookahead int
	Shard     Shard
	// AdapterSlots is how many adapters the weights have room for; 0: the ops have no Adapt.
	AdapterSlots int

	lives []life // in the order of recording
}

// Rows returns the bucket's row count for a symbol.
func (p *Program) Rows(r Rows) int { return p.Bucket.Rows(r) }

// Recorder builds a Program. It places a value by first fit when New makes it, and reuses
// the bytes after Free. So Scratch, the peak, is known before the program runs.
type Recorder struct {
	p    *Program
	live scratch
	at   map[Value]bool // the live values
	err  error
}

// Record starts a program; the caller fills Weights, Classes and Vocab in p.
func Record(p *Program) *Recorder {
	if p.Shard.World == 0 {
		p.Shard = Whole
	}
	return &Recorder{p: p, at: map[Value]bool{}}
}

// New makes a live value.
func (r *Recorder) New(name string, f kernels.Format, rows Rows, cols int) Value {
	v := Value(len(r.p.Values))
	r.p.Values = append(r.p.Values, ValueInfo{Name: name, Format: f, Rows: rows, Cols: cols})
	r.p.lives = append(r.p.lives, life{v: v, of: NoValue})
	r.p.place(v, &r.live)
	r.p.Scratch = max(r.p.Scratch, r.live.peak)
	r.at[v] = true
	return v
}

// Free ends the life of values: later values may reuse their bytes.
func (r *Recorder) Free(vs ...Value) {
	for _, v := range vs {
		if !r.at[v] {
			r.err = fmt.Errorf("program %s: value %d freed twice", r.p.Name, v)
			return
		}
		delete(r.at, v)
		r.p.Values[v].Freed = len(r.p.Ops)
		r.p.lives = append(r.p.lives, life{v: v, of: NoValue, ends: true})
		r.live.give(r.p.Values[v])
	}
}

// Chunks returns a value for each chunk of v's rows. These are parts of v with the same
// life and are not freed. If the rows are not tokens or are not split, it returns v alone.
func (r *Recorder) Chunks(v Value) []Value {
	in, b := r.p.Values[v], r.p.Bucket
	if in.Rows != PerToken || b.chunks() == 1 {
		return []Value{v}
	}
	out := make([]Value, b.chunks())
	for i := range out {
		out[i] = Value(len(r.p.Values))
		part := in
		part.Rows = perChunk + Rows(i)
		r.p.Values = append(r.p.Values, part)
		r.p.lives = append(r.p.lives, life{v: out[i], of: v})
		r.p.placePart(out[i], v)
	}
	return out
}

// Info returns a value's shape and place.
func (r *Recorder) Info(v Value) ValueInfo { return r.p.Values[v] }

// Class returns the geometry of a KV class of the program.
func (r *Recorder) Class(i int) KVClass { return r.p.Classes[i] }

// Do appends an op. It omits AllReduce on a single rank, and puts a Reorder before a Linear whose
// weight has an order of inputs, and an Adapt behind one whose weight has adapters.
func (r *Recorder) Do(op Op) {
	if o, ok := op.(Linear); ok && o.W >= 0 && int(o.W) < len(r.p.Weights) {
		defer r.adapt(o)
	}
	if o, ok := op.(Linear); ok && o.W >= 0 && int(o.W) < len(r.p.Weights) && r.p.Weights[o.W].InputOrder > 0 {
		x := r.Info(o.X)
		y := r.New(x.Name+".ordered", x.Format, x.Rows, x.Cols)
		r.p.Ops = append(r.p.Ops, Reorder{X: o.X, Y: y, Order: WeightID(r.p.Weights[o.W].InputOrder - 1)})
		o.X = y
		r.p.Ops = append(r.p.Ops, o)
		r.Free(y)
		return
	}
	if _, ok := op.(AllReduce); ok && r.p.Shard.World == 1 {
		return
	}
	if a := DraftPositionOf(op); a != nil {
		r.p.Lookahead = max(r.p.Lookahead, a.By)
	}
	r.p.Ops = append(r.p.Ops, op)
}

// adapt appends the Adapt of a Linear whose weight has adapters.
func (r *Recorder) adapt(o Linear) {
	w := r.p.Weights[o.W].Adapters
	if w.Rank == 0 {
		return
	}
	x := r.Info(o.X)
	mid := r.New("lora", kernels.F32, x.Rows, w.Modules*w.Rank)
	r.p.Ops = append(r.p.Ops, Adapt{X: o.X, Mid: mid, Y: o.Y, Adapters: w})
	r.Free(mid)
}

// Program returns the recorded program. It fails if a value was freed twice or never.
func (r *Recorder) Program() (*Program, error) {
	if r.err != nil {
		return nil, r.err
	}
	if len(r.at) > 0 {
		return nil, fmt.Errorf("program %s: %d values never freed", r.p.Name, len(r.at))
	}
	return r.p, nil
}
