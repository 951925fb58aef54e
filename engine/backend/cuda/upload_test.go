//go:build linux && cgo && cuda

package cuda

import (
	"slices"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/kernels"
)

// stepping opens a device for a program of a few ops on rows, with step buffers of a shape.
func stepping(t testing.TB, shape backend.StepShape, g backend.Graphs) (*device, backend.Executable) {
	t.Helper()
	emulated(t)
	f, err := Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	p := &backend.Program{Name: "rows", Bucket: backend.Bucket{Tokens: shape.Tokens, Seqs: shape.Seqs, Samples: shape.Samples}, Vocab: shape.Vocab}
	r := backend.Record(p)
	ids, x, y := r.New("ids", kernels.I32, backend.PerToken, 1), r.New("x", kernels.F32, backend.PerToken, 32), r.New("y", kernels.F32, backend.PerToken, 32)
	r.Do(backend.Tokens{Out: ids})
	for range 4 {
		r.Do(backend.Add{X: x, Into: y, Scale: backend.NoWeight})
	}
	r.Free(ids, x, y)
	s := backend.Settings{Graphs: g}
	l, err := newLayout(f, s)
	if err != nil {
		t.Fatal(err)
	}
	res, err := dry.Run(l, nil, []*backend.Program{p}, shape, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := Opener{}.Open(f, s, res)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	e, err := dev.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return dev.(*device), e
}

// TestUploadTables: of page tables, only the entries of the longest sequence and of a few
// proposals are copied to the device; tables of windows and states are copied whole.
func TestUploadTables(t *testing.T) {
	shape := backend.StepShape{Tokens: 8, Seqs: 3, Samples: 3, Vocab: 32, MaxPages: []int{20000, 20000}}
	d, _ := stepping(t, shape, backend.Graphs{})
	p := &backend.Program{Classes: []backend.KVClass{{BlockSize: 16, MaxPages: 20000}, {BlockSize: 16, MaxPages: 20000, Window: 64}}}
	s := d.Step(0)
	for _, table := range s.Pages {
		for i := range table {
			table[i] = int32(7 * i)
		}
	}
	copy(s.First, []int32{0, 1, 5, 5})
	copy(s.Positions, []int32{9, 300, 301, 302, 303})
	twin := func(i int) []int32 {
		out := make([]int32, 3*20000)
		at := d.arenas[backend.StepIO] + driver.Address(offset(d.host, s.Pages[i]))
		if err := d.do(func() error { return d.in.FromDevice(unsafe.Pointer(&out[0]), at, int64(4*len(out))) }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err := d.do(func() error {
		if err := d.in.Fill(d.arenas[backend.StepIO], 0xff, shape.SetBytes()); err != nil {
			return err
		}
		return d.upload(&executable{d: d, p: p}, nil, backend.Binding{Tokens: 5, Seqs: 3})
	}); err != nil {
		t.Fatal(err)
	}
	for i, used := range []int{(303+1)/16 + 1, 20000} {
		for e, got := range twin(i) {
			want := int32(-1)
			if e%20000 < used {
				want = int32(7 * e)
			}
			if got != want {
				t.Fatalf("class %d, entry %d of sequence %d is %d, want %d", i, e%20000, e/20000, got, want)
			}
		}
	}
}

// TestStepCalls: a step makes few driver calls besides its launches and allocates no Go
// memory. One copy moves its inputs, two events order the streams and one ends it, and a
// graph is one launch.
func TestStepCalls(t *testing.T) {
	g := backend.Graphs{Mode: "full", Sizes: []int{4}}
	d, e := stepping(t, backend.StepShape{Tokens: 4, Seqs: 4, Samples: 4, Vocab: 32, MaxPages: []int{64}}, g)
	graph := backend.Graph{Kind: backend.Decode, Tokens: 4, Seqs: 4, Samples: 4}
	for set := range 2 {
		if err := d.Capture(e, set, graph); err != nil {
			t.Fatal(err)
		}
		s := d.Step(set)
		for i := range 4 {
			s.Positions[i], s.Seq[i], s.First[i+1] = int32(i), int32(i), int32(i+1)
		}
	}
	step := func(b backend.Binding) func() {
		return func() {
			for b.Set = range 2 {
				if err := d.Launch(e, b); err != nil {
					t.Fatal(err)
				}
			}
			for set := range 2 {
				if err := d.Wait(set); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, c := range []struct {
		what             string
		b                backend.Binding
		launches, graphs int64
	}{
		{"launch by launch", backend.Binding{Tokens: 4, Seqs: 4}, 5, 0},
		{"by a graph", backend.Binding{Tokens: 4, Seqs: 4, Graph: graph}, 0, 1},
	} {
		run := step(c.b)
		run()
		want := map[string]int64{"cuLaunchKernel": c.launches, "cuGraphLaunch": c.graphs, "cuMemcpyHtoDAsync": 1, "cuMemcpy2DAsync": 0, "cuEventRecord": 2, "cuStreamWaitEvent": 1, "cuGraphExecUpdate": 0}
		before := map[string]int64{}
		for call := range want {
			before[call] = driver.Counted(call)
		}
		run()
		for call, n := range want {
			if got := driver.Counted(call) - before[call]; got != 2*n {
				t.Errorf("%s: %d times %s for two steps, want %d", c.what, got, call, 2*n)
			}
		}
		if n := testing.AllocsPerRun(20, run); n > 0 {
			t.Errorf("%s: %v allocations for two steps", c.what, n)
		}
	}
}

// TestSampledTwin: tokens that the step before has sampled are read from the twin on the device, which copies of inputs
// leave alone, and not from host memory.
func TestSampledTwin(t *testing.T) {
	shape := backend.StepShape{Tokens: 4, Seqs: 1, Samples: 3, Vocab: 32, Axes: 3}
	d, e := stepping(t, shape, backend.Graphs{})
	twin := d.arenas[backend.StepIO] + driver.Address(offset(d.host, d.Step(1).Sampled))
	zeros, sampled := make([]int32, 3), []int32{4, -1, 6}
	read := func(to []int32, at driver.Address) {
		t.Helper()
		if err := d.do(func() error { return d.in.FromDevice(unsafe.Pointer(&to[0]), at, int64(4*len(to))) }); err != nil {
			t.Fatal(err)
		}
	}
	if read(zeros, twin); !slices.Equal(zeros, []int32{0, 0, 0}) {
		t.Errorf("%v were sampled before the first step", zeros)
	}
	other := d.Step(1)
	copy(other.Sampled, []int32{20, 21, 22}) // in host memory alone
	for i := range other.MRopePositions {
		other.MRopePositions[i] = int32(100 + i)
	}
	if err := d.do(func() error {
		if err := d.in.ToDevice(twin, unsafe.Pointer(&sampled[0]), 12); err != nil {
			return err
		}
		return d.upload(&executable{p: &backend.Program{Axes: 3}}, nil, backend.Binding{Set: 1, Tokens: 4, Seqs: 1, Samples: 3})
	}); err != nil {
		t.Fatal(err)
	}
	places := make([]int32, 12)
	if read(places, d.arenas[backend.StepIO]+driver.Address(offset(d.host, other.MRopePositions))); !slices.Equal(places, other.MRopePositions) {
		t.Errorf("positions on the device: %v", places)
	}
	s := d.Step(0)
	copy(s.Tokens, []int32{-3, 7, -2, -1})
	copy(s.Positions, []int32{0, 1, 2, 3})
	copy(s.First, []int32{0, 4})
	if err := d.Launch(e, backend.Binding{Tokens: 4, Seqs: 1}); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(0); err != nil {
		t.Fatal(err)
	}
	b := d.Scratch(0, e.Program())
	if ids := unsafe.Slice((*int32)(unsafe.Pointer(&b[0])), 4); !slices.Equal(ids, []int32{6, 7, 0, 4}) {
		t.Errorf("tokens are %v, want 6, 7, 0, 4", ids)
	}
}

// TestGreedyLaunches: a step whose sampled rows all take the best token, or a given one, goes without the launches that draw, also by
// a graph; one row that draws or wants its logprob needs them. Tokens are the same.
func TestGreedyLaunches(t *testing.T) {
	emulated(t)
	f, err := Opener{}.Probe()
	if err != nil {
		t.Fatal(err)
	}
	const rows, vocab = 3, 32
	class := backend.KVClass{Name: "full", Format: kernels.BF16, BlockSize: 16, Layers: 1, KVHeads: 1, HeadDim: 32, MaxPages: 4, PagesPerSlab: 1, Plane: true}
	class.SlabBytes = class.PageBytes()
	shape := backend.StepShape{Tokens: rows, Seqs: rows, Samples: rows, Vocab: vocab, MaxPages: []int{4}}
	p := &backend.Program{Name: "greedy", Bucket: backend.Bucket{Tokens: rows, Seqs: rows, Samples: rows}, Vocab: vocab, Classes: []backend.KVClass{class}}
	p.Weights = []backend.WeightSpec{{Name: "table", Rows: vocab, Cols: vocab, Source: kernels.F32, Use: backend.Lookup, Parts: []backend.Part{{Tensor: "table", Format: kernels.F32, Rows: vocab}}}}
	r := backend.Record(p)
	ids, x, z := r.New("ids", kernels.I32, backend.PerToken, 1), r.New("x", kernels.F32, backend.PerToken, vocab), r.New("logits", kernels.F32, backend.PerSample, vocab)
	r.Do(backend.Tokens{Out: ids})
	r.Do(backend.Embed{Ids: ids, Table: 0, Y: x, Scale: 1})
	r.Do(backend.Gather{X: x, Y: z})
	r.Do(backend.Sample{Logits: z})
	r.Free(ids, x, z)
	if _, err := r.Program(); err != nil {
		t.Fatal(err)
	}
	settings := backend.Settings{Graphs: backend.Graphs{Mode: "full", Sizes: []int{rows}}}
	l, err := newLayout(f, settings)
	if err != nil {
		t.Fatal(err)
	}
	res, err := dry.Run(l, p.Weights, []*backend.Program{p}, shape, 4*class.SlabBytes)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := Opener{}.Open(f, settings, res)
	if err != nil {
		t.Fatal(err)
	}
	d := dev.(*device)
	defer d.Close()
	table := make([]float32, vocab*vocab) // the token behind a token is the best
	for i := range vocab {
		table[i*vocab+(i+1)%vocab] = 9
	}
	if err := d.Pack(0, copying{bytesAt(table)}); err != nil {
		t.Fatal(err)
	}
	e, err := d.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	graph := backend.Graph{Kind: backend.Decode, Tokens: rows, Seqs: rows, Samples: rows}
	if err := d.Capture(e, 0, graph); err != nil {
		t.Fatal(err)
	}
	greedy, drawn := backend.SampleRow{TopP: 1, Repetition: 1}, backend.SampleRow{TopP: 1, Repetition: 1, Temperature: 0.1, TopK: 1}
	given, logprob := backend.SampleRow{TopP: 1, Repetition: 1, Temperature: 1, Flags: backend.UseTarget, Target: 5}, backend.SampleRow{TopP: 1, Repetition: 1, Flags: backend.WantLogprob}
	for _, c := range []struct {
		what             string
		rows             [rows]backend.SampleRow
		launches, graphs int64
	}{
		{"greedy", [rows]backend.SampleRow{greedy, greedy, greedy}, 4, 1}, {"a given token", [rows]backend.SampleRow{greedy, given, greedy}, 4, 1},
		{"a drawn token", [rows]backend.SampleRow{greedy, greedy, drawn}, 7, 2}, {"a logprob", [rows]backend.SampleRow{logprob, greedy, greedy}, 7, 2},
	} {
		for _, b := range []backend.Binding{{Tokens: rows, Seqs: rows, Samples: rows}, {Tokens: rows, Seqs: rows, Samples: rows, Graph: graph}} {
			s := d.Step(0)
			for i := range rows {
				s.Tokens[i], s.Positions[i], s.Seq[i], s.First[i+1], s.Rows[i], s.Sampling[i] = int32(7*i), 0, int32(i), int32(i+1), int32(i), c.rows[i]
				s.Sampled[i] = -1
			}
			launches, graphs := driver.Counted("cuLaunchKernel"), driver.Counted("cuGraphLaunch")
			if err := d.Launch(e, b); err != nil {
				t.Fatal(err)
			}
			if err := d.Wait(0); err != nil {
				t.Fatal(err)
			}
			launches, graphs = driver.Counted("cuLaunchKernel")-launches, driver.Counted("cuGraphLaunch")-graphs
			if byGraph := b.Graph.Kind != backend.Eager; byGraph && (graphs != c.graphs || launches != 0) || !byGraph && launches != c.launches {
				t.Errorf("%s, %v: %d launches, %d graphs", c.what, b.Graph, launches, graphs)
			}
			for i, r := range c.rows {
				want := int32(7*i + 1)
				if r.Flags&backend.UseTarget != 0 {
					want = r.Target
				}
				if s.Sampled[i] != want || s.Status[i] != backend.RowOK {
					t.Errorf("%s, %v: row %d is token %d, status %d, want %d", c.what, b.Graph, i, s.Sampled[i], s.Status[i], want)
				}
			}
		}
	}
}
