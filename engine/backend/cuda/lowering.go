package cuda

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// launch is one kernel launch of a program. Everything known before a step is fixed; the rest
// are symbols.
type launch struct {
	kernel          string
	blocks, threads [3]int
	shared          int
	args            []byte
	symbols         []symbol
	op              int                  // index of the program's op that it belongs to
	pieces          cuda.AttentionPieces // of attention with a list
	draws           bool                 // only for rows that draw or want logprobs
}

// symbol is a number of a launch that depends on the step's row counts:
// ceil(bound·times/over)+add. It is written to the int32 at offset at of the arguments, or to
// dimension dim of the grid if at is inGrid.
type symbol struct {
	of               int // backend.Rows
	at, dim          int
	times, over, add int32
}

const inGrid = -1

// addresses are the device addresses of a program's operands, for one set of step buffers.
type addresses struct {
	arenas  [backend.NumArenas]cuda.Ptr
	weights []int64 // offset of each in the Weights arena
	step    stepAddresses
	sampled cuda.Ptr // the other set's Sampled, in device memory
	item    itemAddresses
	shape   backend.StepShape
}

// stepAddresses are the addresses of a set's buffers.
type stepAddresses struct {
	tokens, positions, seq, first, work, rows, sampling, grammar, allowed, bias, places, adapters, encoded, itemEnd, encodedNext cuda.Ptr
	pages                                                                                                                        []cuda.Ptr
	sampled, reported, status, logprob, rank, topIDs, topProbs, accepted, drafts, emitted                                        cuda.Ptr // reported: Sampled for the host
}

// noAddresses returns zero addresses, to lower a program that is not run.
func noAddresses(p *backend.Program) addresses {
	return addresses{weights: make([]int64, len(p.Weights)), step: stepAddresses{pages: make([]cuda.Ptr, len(p.Classes))}}
}

// variant is the class of steps that a list of launches is for: steps of at most rows rows.
type variant struct {
	rows   int  // maximum of tokens, sequences and sampled rows
	decode bool // one token for each sequence; else any mix
}

// Row counts of variants. Up to fewRows one list serves all steps; for moreRows there is one
// list for decode steps and one for others.
var (
	fewRows  = []int{1, 8, 16, 32}
	moreRows = []int{64, 128, 256, 512}
)

// variants returns the variants of a program, from few rows to many. A step uses the first
// one that holds it.
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
	decoding := 0 // rows that the lists for decoding cover
	for _, n := range append(moreRows[:len(moreRows):len(moreRows)], most) {
		if n > most {
			continue
		}
		if b.Seqs > 1 && decoding < max(b.Seqs, b.Samples) {
			out, decoding = append(out, variant{n, true}), n
		}
		out = append(out, variant{n, false})
	}
	return out
}

// holds reports whether the variant includes a step.
func (v variant) holds(b backend.Binding) bool {
	return max(b.Tokens, b.Seqs, b.Samples) <= v.rows && (!v.decode || b.Tokens == b.Seqs)
}

// few reports whether each sequence has few rows in the variant's steps.
func (v variant) few() bool { return v.decode || v.rows <= fewRows[len(fewRows)-1] }

// lowering builds a program's launches.
type lowering struct {
	l    layout
	p    *backend.Program
	v    variant
	at   addresses
	now  int // index of the current op
	left packedX
	work []workList // of the ops so far
	out  []launch

	chain   chain         // the last that began
	twice   packedX       // the rows of left packed in a second way, for products up to its op
	joined  int           // ops before it are done by the launch that joined attention
	ordered int           // the Experts whose rows are sorted already
	normed  *backend.Norm // of the next Experts, left to its packing
	stored  *storing      // left to a later packing
	gate    cuda.Ptr      // by which the next packing multiplies; 0: nothing
}

// lower returns p as launches, for the steps of a variant.
func (l layout) lower(p *backend.Program, v variant, at addresses) ([]launch, error) {
	c := lowering{l: l, p: p, v: v, at: at}
	for i, op := range p.Ops {
		c.now = i
		if err := c.op(op); err != nil {
			return nil, fmt.Errorf("program %s: op %d: %w", p.Name, i, err)
		}
	}
	if err := c.settle(nil); err != nil {
		return nil, fmt.Errorf("program %s: %w", p.Name, err)
	}
	return c.out, nil
}

// starts returns the index of each op's first launch, and last the number of launches.
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

// drawing returns the range of launches that only rows which draw or want logprobs need; they follow each other.
func drawing(launches []launch) [2]int {
	from := slices.IndexFunc(launches, func(l launch) bool { return l.draws })
	if from < 0 {
		return [2]int{len(launches), len(launches)}
	}
	to := from
	for to < len(launches) && launches[to].draws {
		to++
	}
	return [2]int{from, to}
}

// rows returns the largest row count of a symbol in the variant's steps.
func (c *lowering) rows(r backend.Rows) int { return min(c.v.rows, c.p.Rows(r)) }

// grid is the blocks of a launch; each dimension is a number or depends on a row symbol.
type grid [3]dimension

// dimension is add, or with a row symbol ceil(rows·times/over)+add.
type dimension struct {
	of               int
	times, over, add int
	bound            bool
}

// each returns the dimension ceil(rows·times/over) for the rows of r.
func each(r backend.Rows, times, over int) dimension {
	return dimension{of: int(r), times: times, over: over, bound: true}
}

func fixed(n int) dimension { return dimension{add: n} }

// line returns a grid of one dimension.
func line(d dimension) grid { return grid{d, fixed(1), fixed(1)} }

// field is a number in the arguments, at an offset.
type field struct {
	offset uintptr
	dimension
}

// bind returns a field that holds the rows of a symbol, times a factor.
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

// symbol returns d as a symbol at an offset of the arguments or in a dimension of the grid.
// It fails if its value could overflow in a step of the variant.
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

// info returns what a program records of an operand; value and weight return its address, 0
// for none.
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

// workspace returns the address of an offset in the workspace.
func (c *lowering) workspace(off int64) cuda.Ptr {
	return c.at.arenas[backend.Workspace] + cuda.Ptr(off)
}

// across returns how many threads share a row of n numbers, each with about four: whole
// warps.
func across(n, most int) int { return min(most, max(1, (n+127)/128)*32) }

// lanes returns n threads rounded up to whole warps, at most most.
func lanes(n, most int) int { return min(most, max(1, (n+31)/32)*32) }

// bf16 returns 1 if a value is stored in bf16, 0 if in float32.
func (c *lowering) bf16(v backend.Value) int32 { return flag(c.info(v).Format == kernels.BF16) }

// stored16 returns the cuda.Store of queries.
func (c *lowering) stored16(q backend.Value) int32 {
	n, _ := cuda.Store(c.info(q).Format)
	return n
}

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
