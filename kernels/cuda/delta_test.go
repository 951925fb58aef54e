package cuda_test

import (
	"fmt"
	"testing"

	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/kernels/ref"
)

// recurrent is a class of states, each in its own page, and of snapshots.
type recurrent struct {
	arena          []byte
	rows, cols     int
	copies         int
	inputs, matrix int // bytes
	page           int // bytes
	seqs           int
	marks          []int32
}

// newRecurrent allocates the pages of sequences, then those of snapshots.
func newRecurrent(f kernels.Format, rows, cols, copies, matrix, seqs int) *recurrent {
	c := &recurrent{rows: rows, cols: cols, copies: copies, inputs: int(f.Bytes(int64(rows * cols))), matrix: matrix, seqs: seqs}
	c.page = int(ceil64(int64(c.inputs+copies*matrix)) + 64)
	c.arena = make([]byte, 2*seqs*c.page)
	for range seqs {
		c.marks = append(c.marks, -1, -1, 0, -1, 0)
	}
	return c
}

func (c *recurrent) args(r *rig, arena cuda.Ptr) cuda.States {
	var tables []int32
	for s := range c.seqs {
		tables = append(tables, int32(c.seqs-1-s))
	}
	return cuda.States{
		Pages: cuda.Pages{Arena: arena, Tables: up(r, tables), Width: 1, PageBytes: int64(c.page), SlabBytes: int64(c.page), PerSlab: 1, K: 64},
		Marks: up(r, c.marks), MarkPageBytes: int64(c.page), MarkSlabBytes: int64(c.page), MarkPerSlab: 1, MarkK: 64,
		Rows: int32(c.rows), Cols: int32(c.cols), Copies: int32(c.copies), MatrixBytes: int64(c.matrix), InputBytes: int64(c.inputs),
	}
}

// step is tokens of several sequences, at their positions.
type step struct{ first, positions []int32 }

func newStep(start, count []int) step {
	s := step{first: []int32{0}}
	for i, n := range count {
		for j := range n {
			s.positions = append(s.positions, int32(start[i]+j))
		}
		s.first = append(s.first, int32(len(s.positions)))
	}
	return s
}

// TestConv runs sequences in chunks, with states stored in order and by position. One sequence
// begins from a snapshot of another.
func TestConv(t *testing.T) {
	for _, f := range []kernels.Format{kernels.F32, kernels.BF16, kernels.F16} {
		t.Run(f.String(), func(t *testing.T) { testConv(newRig(t), f) })
	}
}

func testConv(r *rig, f kernels.Format) {
	for blocks, rows := range map[int]int{1: 3, 2: 5, 3: 3} {
		const cols, kernel, tokens = 70, 4, 80
		w := r.floats(cols*kernel, 1)
		_, x := stored(f, r.floats(tokens*cols, 1))
		want, state := make([]float32, tokens*cols), make([]float32, cols*(kernel-1))
		for i := range tokens * cols {
			c := i % cols
			want[i] = ref.Conv(w[c*kernel:(c+1)*kernel], state[c*(kernel-1):(c+1)*(kernel-1)], x[i], 0)
		}
		c := newRecurrent(f, rows, cols, 1, 64, 3)
		arena := up(r, c.arena)
		run := func(s step, x []float32) []float32 {
			a := cuda.ConvArgs{States: c.args(r, arena), X: up(r, x), W: up(r, w), Y: alloc[float32](r, len(x)), First: up(r, s.first), Positions: up(r, s.positions), Kernel: kernel}
			launch(r, "conv_"+f.String(), cudatest.Grid{Blocks: [3]int{2, 3, blocks}, Threads: [3]int{64, 1, 1}}, &a)
			return down[float32](r, a.Y, len(x))
		}
		// Sequence 0 has all its tokens in two steps and stores a snapshot after 60 of them;
		// sequence 2 begins from it.
		c.marks[1], c.marks[2] = 4, 60
		got := run(newStep([]int{0, 0, 0}, []int{70, 0, 0}), x[:70*cols])
		c.marks[1], c.marks[10] = -1, 4
		both := append(append([]float32{}, x[70*cols:]...), x[60*cols:77*cols]...)
		got = append(got, run(newStep([]int{70, 0, 60}, []int{10, 0, 17}), both)...)
		c.marks[10] = -1
		got = append(got, run(newStep([]int{0, 0, 77}, []int{0, 0, 3}), x[77*cols:])...)
		r.near("sequence 0", got[:tokens*cols], want, 1e-6)
		r.near("sequence 2", got[tokens*cols:], want[60*cols:], 1e-6)
	}
}

// TestDelta does the same for the delta rule, with one copy of the state and with several.
func TestDelta(t *testing.T) {
	for _, dims := range [][2]int{{16, 40}, {38, 128}, {128, 128}} {
		for _, copies := range []int{1, 3} {
			t.Run(fmt.Sprint(dims, copies), func(t *testing.T) { testDelta(newRig(t), dims[0], dims[1], copies) })
		}
	}
}

func testDelta(r *rig, n, d, copies int) {
	const keyHeads, valueHeads, tokens = 2, 4, 9
	in := 2*keyHeads*n + valueHeads*d
	x, ba, aLog, bias := r.floats(tokens*in, 1), r.floats(tokens*2*valueHeads, 1), r.floats(valueHeads, 0.5), r.floats(valueHeads, 1)
	want, state := make([]float32, tokens*valueHeads*d), make([]float32, valueHeads*n*d)
	for i := range tokens {
		row := x[i*in : (i+1)*in]
		for h := range valueHeads {
			k := h / (valueHeads / keyHeads)
			ref.Delta(ref.DeltaArgs{
				Q: row[k*n:][:n], K: row[keyHeads*n+k*n:][:n], V: row[2*keyHeads*n+h*d:][:d],
				B: ba[i*2*valueHeads+h], A: ba[i*2*valueHeads+valueHeads+h], ALog: aLog[h], Bias: bias[h],
				State: state[h*n*d : (h+1)*n*d], Y: want[(i*valueHeads+h)*d:][:d],
			})
		}
	}
	c := newRecurrent(kernels.F32, 3, 8, copies, 4*valueHeads*n*d, 2)
	arena := up(r, c.arena)
	runs := 0
	run := func(s step, from, to int) []float32 {
		r.Schedule(cudatest.Schedules[(runs+2)%len(cudatest.Schedules)])
		runs++
		var samples []int32
		for i := range to - from {
			samples = append(samples, int32(i))
		}
		rows := (to - from) * valueHeads * d
		a := cuda.DeltaArgs{
			States: c.args(r, arena), QKV: up(r, x[from*in:to*in]), BA: up(r, ba[from*2*valueHeads:to*2*valueHeads]), ALog: up(r, aLog), Bias: up(r, bias),
			Y: alloc[float32](r, rows), First: up(r, s.first), Positions: up(r, s.positions), Samples: up(r, samples),
			KeyHeads: keyHeads, ValueHeads: valueHeads, KeyDim: int32(n), ValueDim: int32(d), SampleCount: int32(len(samples)),
		}
		launch(r, cuda.ChooseDelta(n, d, true), cudatest.Grid{Blocks: [3]int{ceil(d, cuda.DeltaColumns), valueHeads, 2}, Threads: [3]int{128, 1, 1}}, &a)
		return down[float32](r, a.Y, rows)
	}
	row := valueHeads * d
	c.marks[3], c.marks[4] = 2, 4
	got := run(newStep([]int{0, 0}, []int{6, 0}), 0, 6)
	c.marks[3] = -1
	r.near("prompt", got, want[:6*row], 2e-5)
	r.near("chunk", run(newStep([]int{6, 0}, []int{3, 0}), 6, 9), want[6*row:], 2e-5)
	c.marks[5] = 2 // sequence 1 begins from the snapshot after four tokens
	r.near("checkpoint", run(newStep([]int{0, 4}, []int{0, 2}), 4, 6), want[4*row:6*row], 2e-5)
	c.marks[5] = -1
	if copies > 1 { // two of three tokens were not accepted: the state is that after the first
		r.near("rolled back", run(newStep([]int{7, 0}, []int{2, 0}), 7, 9), want[7*row:], 2e-5)
	}
}

// TestDeltaChunks computes a prompt in chunks, from the middle of one on, while another
// sequence decodes. It continues token by token from every stored state.
func TestDeltaChunks(t *testing.T) {
	for _, dims := range [][2]int{{16, 40}, {128, 33}, {38, 8}} {
		for _, copies := range []int{1, 3} {
			t.Run(fmt.Sprint(dims, copies), func(t *testing.T) { testDeltaChunks(newRig(t), dims[0], dims[1], copies) })
		}
	}
}

func testDeltaChunks(r *rig, n, d, copies int) {
	const keyHeads, valueHeads, tokens, bound = 1, 2, 137, 5e-5
	in, row := 2*keyHeads*n+valueHeads*d, valueHeads*d
	x, ba, aLog, bias := r.floats(tokens*in, 1), r.floats(tokens*2*valueHeads, 1), r.floats(valueHeads, 0.5), r.floats(valueHeads, 1)
	copy(x[50*in+n:], x[49*in+n:][:n]) // a key twice
	for i := range n {
		x[40*in+i] = 0
	}
	want, state := make([]float32, tokens*row), make([]float32, valueHeads*n*d)
	for i := range tokens {
		from := x[i*in : (i+1)*in]
		for h := range valueHeads {
			ref.Delta(ref.DeltaArgs{
				Q: from[:n], K: from[n:][:n], V: from[2*n+h*d:][:d], B: ba[i*2*valueHeads+h], A: ba[i*2*valueHeads+valueHeads+h],
				ALog: aLog[h], Bias: bias[h], State: state[h*n*d : (h+1)*n*d], Y: want[(i*valueHeads+h)*d:][:d],
			})
		}
	}
	least := int32(cuda.DeltaLeast)
	if n == 16 { // all in chunks, even a single token
		least = 1
	}
	c := newRecurrent(kernels.F32, 3, 8, copies, 4*valueHeads*n*d, 2)
	arena := up(r, c.arena)
	runs := 0
	run := func(samples []int32, parts ...[2]int) []float32 { // the tokens [from, to) of each sequence
		r.Schedule(cudatest.Schedules[(runs+n)%len(cudatest.Schedules)])
		runs++
		var qkv, bas []float32
		var start, count []int
		for _, p := range parts {
			qkv, bas = append(qkv, x[p[0]*in:p[1]*in]...), append(bas, ba[p[0]*2*valueHeads:p[1]*2*valueHeads]...)
			start, count = append(start, p[0]), append(count, p[1]-p[0])
		}
		s := newStep(start, count)
		rows := len(s.positions)
		a := cuda.DeltaArgs{
			States: c.args(r, arena), QKV: up(r, qkv), BA: up(r, bas), ALog: up(r, aLog), Bias: up(r, bias), Y: alloc[float32](r, rows*row),
			First: up(r, s.first), Positions: up(r, s.positions), Samples: up(r, append(samples, 0)), Work: alloc[byte](r, int(cuda.DeltaWork(rows, valueHeads))),
			KeyHeads: keyHeads, ValueHeads: valueHeads, KeyDim: int32(n), ValueDim: int32(d), SampleCount: int32(len(samples)), Least: least, Seqs: int32(len(parts)),
		}
		g := cudatest.Grid{Blocks: [3]int{cuda.DeltaChunks(rows, len(parts)), valueHeads, 1}, Threads: [3]int{128, 1, 1}, Shared: cuda.DeltaChunksShared}
		launch(r, "delta_chunks", g, &a)
		g.Blocks, g.Shared = [3]int{ceil(d, 32), valueHeads, len(parts)}, cuda.DeltaPromptShared
		launch(r, "delta_prompt", g, &a)
		g.Blocks[0], g.Shared = ceil(d, cuda.DeltaColumns), 0
		launch(r, cuda.ChooseDelta(n, d, true), g, &a)
		return down[float32](r, a.Y, rows*row)
	}
	part := func(from, to int) []float32 { return want[from*row : to*row] }
	c.marks[1], c.marks[2], c.marks[3], c.marks[4] = 2, 70, 3, 64
	r.near("prompt", run(nil, [2]int{0, 100}, [2]int{0, 0}), part(0, 100), bound)
	c.marks[1], c.marks[3], c.marks[5] = -1, -1, 2 // sequence 1 begins after 70 tokens
	r.near("chunk", run([]int32{34}, [2]int{100, 136}, [2]int{70, 73}), append(append([]float32{}, part(100, 136)...), part(70, 73)...), bound)
	c.marks[5] = 3 // and then in chunks after 64
	r.near("decode", run(nil, [2]int{136, 137}, [2]int{64, 90}), append(append([]float32{}, part(136, 137)...), part(64, 90)...), bound)
	c.marks[5] = -1
	if copies > 1 { // the last token was not accepted, and the one before it was sampled
		r.near("rolled back", run(nil, [2]int{135, 137}, [2]int{90, 91}), append(append([]float32{}, part(135, 137)...), part(90, 91)...), bound)
	}
}
