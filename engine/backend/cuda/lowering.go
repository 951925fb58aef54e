package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels/cuda"
)

// launch is one kernel of a program with all that is known before a step: the rest are
// symbols.
type launch struct {
	kernel          string
	blocks, threads [3]int
	shared          int
	args            []byte
	symbols         []symbol
	op              int // of the program, whose work it does
}

// symbol is a number that a launch's bindings give: ceil(bound·times/over)+plus, put to the
// int32 at offset at of the arguments, or to dimension dim of the grid where at is inGrid.
type symbol struct {
	of               int // backend.Rows
	at, dim          int
	times, over, add int32
}

const inGrid = -1

// addresses are where a program's operands lie, for one set of step buffers.
type addresses struct {
	arenas  [backend.NumArenas]cuda.Ptr
	weights []int64 // offset of each in its arena
	step    stepAddresses
	sampled cuda.Ptr // of the other set
	shape   backend.StepShape
}

// stepAddresses are those of a set's buffers.
type stepAddresses struct {
	tokens, positions, seq, first, rows, sampling, grammar, allowed, bias, places cuda.Ptr
	pages                                                                         []cuda.Ptr
	sampled, status, logprob, rank, topIDs, topProbs, accepted, drafts, emitted   cuda.Ptr
}

// nowhere are addresses to lower a program with that is not run.
func nowhere(p *backend.Program) addresses {
	return addresses{weights: make([]int64, len(p.Weights)), step: stepAddresses{pages: make([]cuda.Ptr, len(p.Classes))}}
}

// variant is for which steps a list of launches is: of so many rows at most.
type variant struct {
	rows   int  // tokens, sequences and rows that sample
	decode bool // a token for each sequence; else any
}

// Rows up to which a list of launches of its own serves all steps, and those where
// decoding and prompts have one each.
var (
	fewRows  = []int{1, 8, 16, 32}
	moreRows = []int{64, 128, 256, 512}
)

// variants are the lists of a program, from few rows to many: the first that holds a step
// is the step's.
func variants(b backend.Bucket) []variant {
	most := max(b.Tokens, b.Seqs, b.Samples)
	var out []variant
	for _, n := range fewRows {
		if n < most {
			out = append(out, variant{rows: n})
		}
	}
	if most <= fewRows[len(fewRows)-1] {
		return append(out, variant{rows: most})
	}
	decoding := 0 // rows that lists for decoding hold
	for _, n := range append(moreRows[:len(moreRows):len(moreRows)], most) {
		if n > most {
			continue
		}
		if decoding < max(b.Seqs, b.Samples) {
			out, decoding = append(out, variant{n, true}), n
		}
		out = append(out, variant{n, false})
	}
	return out
}

// holds says whether a step is one of the variant's.
func (v variant) holds(b backend.Binding) bool {
	return max(b.Tokens, b.Seqs, b.Samples) <= v.rows && (!v.decode || b.Tokens == b.Seqs)
}

// few says that the variant's steps have few rows of each sequence.
func (v variant) few() bool { return v.decode || v.rows <= fewRows[len(fewRows)-1] }

// lowering makes a program's launches.
type lowering struct {
	l    layout
	p    *backend.Program
	v    variant
	at   addresses
	now  int // the op that is being lowered
	left packedX
	out  []launch
}

// lower is p as launches, for the steps of a variant.
func (l layout) lower(p *backend.Program, v variant, at addresses) ([]launch, error) {
	c := lowering{l: l, p: p, v: v, at: at}
	for i, op := range p.Ops {
		c.now = i
		if err := c.op(op); err != nil {
			return nil, fmt.Errorf("program %s: op %d: %w", p.Name, i, err)
		}
	}
	return c.out, nil
}

// starts is where the launches of each op begin, and behind the last where they end.
func starts(launches []launch, ops int) []int {
	out := make([]int, ops+1)
	at := 0
	for i := range out {
		for at < len(launches) && launches[at].op < i {
			at++
		}
		out[i] = at
	}
	return out
}

// rows is how many rows of a symbol the variant's steps have at most.
func (c *lowering) rows(r backend.Rows) int { return min(c.v.rows, c.p.Rows(r)) }

// grid is the blocks of a launch, each dimension a number or a number of a row symbol.
type grid [3]dimension

// dimension is add, or with a symbol ceil(rows·times/over)+add.
type dimension struct {
	of               int
	times, over, add int
	bound            bool
}

// each is a block for so many times over rows of a symbol.
func each(r backend.Rows, times, over int) dimension {
	return dimension{of: int(r), times: times, over: over, bound: true}
}

func fixed(n int) dimension { return dimension{add: n} }

// line is a grid of one dimension.
func line(d dimension) grid { return grid{d, fixed(1), fixed(1)} }

// field is a symbol in the arguments, at a field's offset.
type field struct {
	offset uintptr
	dimension
}

// bind has a field count rows of a symbol, or a multiple of them.
func bind(offset uintptr, r backend.Rows, times int) field { return field{offset, each(r, times, 1)} }

// add appends a launch of a kernel with its arguments.
func add[T any](c *lowering, kernel string, g grid, threads, shared int, args T, fields ...field) error {
	if _, ok := c.l.kernels[kernel]; !ok {
		return missing(c.p.Ops[c.now], "as "+kernel)
	}
	l := launch{op: c.now, kernel: kernel, threads: [3]int{threads, 1, 1}, shared: shared, args: bytesOf(&args)}
	for i, d := range g {
		l.blocks[i] = d.add
		if d.bound {
			s, err := c.symbol(d, inGrid, i)
			if err != nil {
				return err
			}
			l.symbols = append(l.symbols, s)
		}
	}
	for _, f := range fields {
		s, err := c.symbol(f.dimension, int(f.offset), 0)
		if err != nil {
			return err
		}
		l.symbols = append(l.symbols, s)
	}
	c.out = append(c.out, l)
	return nil
}

// symbol is d at an offset of the arguments or in a dimension of the grid, which steps of
// the variant do not carry beyond what counts it.
func (c *lowering) symbol(d dimension, at, dim int) (symbol, error) {
	rows, most := int64(c.rows(backend.Rows(d.of))), int64(math.MaxInt32)
	if at == inGrid && dim > 0 {
		most = 1<<16 - 1
	}
	product := rows * int64(d.times)
	if d.over > math.MaxInt32 || product > math.MaxInt32 || (product+int64(d.over)-1)/int64(d.over)+int64(d.add) > most {
		return symbol{}, backend.Unsupported(name, fmt.Sprintf("op %s of %d rows", backend.OpName(c.p.Ops[c.now]), rows), fmt.Sprintf("a launch counts to %d; lower scheduler.maxNumBatchedTokens", most))
	}
	return symbol{of: d.of, at: at, dim: dim, times: int32(d.times), over: int32(d.over), add: int32(d.add)}, nil
}

// bytesOf copies a struct of numbers.
func bytesOf[T any](v *T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))...)
}

// info, value and weight are what a program says of an operand and where it lies; 0 for none.
func (c *lowering) info(v backend.Value) backend.ValueInfo { return c.p.Values[v] }

func (c *lowering) value(v backend.Value) cuda.Ptr {
	if v == backend.NoValue {
		return 0
	}
	return c.at.arenas[backend.Scratch] + cuda.Ptr(c.p.Values[v].Offset)
}

func (c *lowering) weight(w backend.WeightID) cuda.Ptr {
	if w == backend.NoWeight {
		return 0
	}
	return c.at.arenas[backend.Weights] + cuda.Ptr(c.at.weights[w])
}

// room is a place in the workspace.
func (c *lowering) room(off int64) cuda.Ptr { return c.at.arenas[backend.Workspace] + cuda.Ptr(off) }

// across is how many threads share a row of n numbers, each having a few: whole warps.
func across(n, most int) int { return min(most, max(1, (n+127)/128)*32) }

// lanes is n threads in whole warps, at most most.
func lanes(n, most int) int { return min(most, max(1, (n+31)/32)*32) }

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
