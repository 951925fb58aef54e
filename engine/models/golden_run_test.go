package models_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/backend/local"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// bound returns the permitted difference of a run of a golden file with a K/V format.
// testdata/README.md lists the bound of each arithmetic. For small checkpoints it is in units of
// Golden.Spread.
type bound func(golden string, kv kernels.Format) enginetest.GoldenBound

// goldenRun is one way to compute a recorded run.
type goldenRun struct {
	Opener   backend.Opener
	Settings backend.Settings
	KV       kernels.Format
	Block    int          // tokens a page holds
	Build    models.Build // of the weights
	LoRA     string       // directory of an adapter that all tokens have; "": none
	Chunks   []int        // prompt tokens of each step, the last number repeated until the prompt ends; decoding is one by one
	Rows     int          // how many of the recorded rows are computed; 0: all
	Tensor   int          // tensor parallel ranks; 0: one
	Pipe     int          // pipeline stages; 0: one
	// Groups returns the groups of the ranks; their devices then open at the same time. nil: local.New.
	Groups  func(t testing.TB, tensor, pipe int) []backend.Group
	Graphs  bool                                         // each step is captured and replayed
	Alter   func(*backend.Step, *enginetest.Golden, int) // changes a filled step of that many tokens; nil: none
	Encoded func(image int, rows []float32)              // receives the tower's output for each image; nil: nothing does
}

// checkpointOf returns the path of the checkpoint that a golden file was recorded from.
func checkpointOf(t testing.TB, golden string) string {
	t.Helper()
	if !enginetest.Tiny(golden) {
		if _, err := os.Stat(smolLM2); errors.Is(err, fs.ErrNotExist) {
			t.Skipf("not run: %s is absent, make model fetches it", smolLM2)
		}
		return smolLM2
	}
	path := filepath.Join("testdata", strings.TrimSuffix(golden, x8))
	if gguf := filepath.Join(path, "model.gguf"); fileExists(gguf) {
		return gguf
	}
	return path
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// RunGolden computes the recorded tokens with r and compares every row of logits with the recorded
// ones: the prompt in chunks, then the recorded steps one by one. It returns the differences and
// the logits, row by row. The tests of other backends call it with their opener and bound.
func RunGolden(t testing.TB, r goldenRun, g *enginetest.Golden, path string) (*enginetest.GoldenTally, [][]float32) {
	t.Helper()
	m, rows := openRanks(t, r, g, path), g.Rows()
	if r.Rows > 0 {
		rows = min(rows, r.Rows)
	}
	tally, all := &enginetest.GoldenTally{}, make([][]float32, 0, rows)
	for at, chunk := 0, 0; at < rows; chunk++ {
		n := 1
		if at < len(g.InputIDs) {
			n = min(wholeItems(g, at, r.Chunks[min(chunk, len(r.Chunks)-1)]), len(g.InputIDs)-at, rows-at)
		}
		for i, row := range m.step(t, g.Tokens()[at:at+n], at, chunk%2) {
			d, err := g.Compare(at+i, row)
			if err != nil {
				t.Fatal(err)
			}
			tally.Add(at+i, d)
			all = append(all, row)
		}
		at += n
	}
	return tally, all
}

// goldenRanks are the ranks of a model, those of the last stage behind the others.
type goldenRanks []*goldenModel

// openRanks loads a checkpoint, on several ranks if the run has them.
func openRanks(t testing.TB, r goldenRun, g *enginetest.Golden, path string) goldenRanks {
	t.Helper()
	if r.Tensor == 0 && r.Pipe == 0 {
		return goldenRanks{openGolden(t, r, g, path)}
	}
	if r.Groups != nil {
		return openTogether(t, r, g, path)
	}
	var out goldenRanks
	for _, group := range local.New(max(1, r.Tensor), max(1, r.Pipe)) {
		one := r
		one.Build.Shard, one.Build.Pipe, one.Settings.Group = group.Tensor(), group.Pipe(), group
		out = append(out, openGolden(t, one, g, path))
	}
	return out
}

// openTogether opens the ranks at the same time, because each waits for the others.
func openTogether(t testing.TB, r goldenRun, g *enginetest.Golden, path string) goldenRanks {
	t.Helper()
	groups := r.Groups(t, max(1, r.Tensor), max(1, r.Pipe))
	out := make(goldenRanks, len(groups))
	var all sync.WaitGroup
	for i, group := range groups {
		all.Go(func() {
			one := r
			one.Build.Shard, one.Build.Pipe, one.Settings.Group = group.Tensor(), group.Pipe(), group
			out[i] = openGolden(t, one, g, path)
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return out
}

// step runs tokens on all ranks at once and returns the logits of the last one, nil if that is not of the last stage.
func (m goldenRanks) step(t testing.TB, tokens []int32, at, set int) [][]float32 {
	t.Helper()
	for _, one := range m {
		one.launch(t, tokens, at, set)
	}
	for _, one := range m {
		must(t, one.dev.Wait(set))
	}
	return m[len(m)-1].rows(len(tokens))
}

// goldenModel is a rank of a model on a device, with one sequence.
type goldenModel struct {
	dev     backend.Device
	exe     backend.Executable
	logits  backend.Value
	classes []backend.KVClass
	first   []int32 // first page of each class
	blocks  []int32 // number of pages of each class
	slot    int32   // of the adapter
	sends   bool    // to the next stage: it has no logits
	graphs  bool
	g       *enginetest.Golden
	alter   func(*backend.Step, *enginetest.Golden, int)
	tower   *goldenTower // nil: the prompt has no images
	encoded func(image int, rows []float32)
}

// openGolden loads a checkpoint. Its program ends with the logits and samples nothing, so that they
// stay in scratch.
func openGolden(t testing.TB, r goldenRun, g *enginetest.Golden, path string) *goldenModel {
	t.Helper()
	ck, err := checkpoint.Open(path)
	must(t, err)
	t.Cleanup(func() { ck.Close() })
	build := r.Build
	build.Vision = len(g.Items) > 0
	if enginetest.Recurrent(filepath.Base(path)) {
		build.Dtype = kernels.F32 // the state stores inputs in the activation format, and the reference's is float32
	}
	model, err := models.New(ck, build)
	must(t, err)
	facts, err := r.Opener.Probe()
	must(t, err)
	layout, err := r.Opener.Layout(facts, r.Settings)
	must(t, err)
	m := &goldenModel{classes: model.Classes(r.Block, r.KV), graphs: r.Graphs, g: g, alter: r.Alter, encoded: r.Encoded}
	rows := largestItem(g)
	for _, n := range r.Chunks {
		rows = max(rows, min(n, len(g.InputIDs)))
	}
	slabs := m.place(g.Rows())
	p, err := model.Record(&backend.Program{
		Name: "golden", Bucket: backend.Bucket{Tokens: rows, Seqs: 1, Samples: rows}, Classes: m.classes,
	})
	must(t, err)
	switch last := p.Ops[len(p.Ops)-1].(type) {
	case backend.Sample:
		p.Ops, m.logits = p.Ops[:len(p.Ops)-1], last.Logits
	case backend.Send:
		m.sends = true
	default:
		t.Fatalf("the program ends with %s, not with sample", backend.OpName(last))
	}
	shape := backend.StepShape{Tokens: rows, Seqs: 1, Samples: rows, Vocab: model.Vocab(), Bias: 1, Logprobs: 1, AdapterSlots: build.LoRA.Slots,
		Axes: p.Axes, Items: p.TakesItems()}
	for _, c := range m.classes {
		shape.MaxPages = append(shape.MaxPages, c.MaxPages)
	}
	programs := []*backend.Program{p}
	if len(g.Items) > 0 {
		m.tower = recordTower(t, model, g)
		programs = append(programs, m.tower.p)
	}
	res, err := dry.Run(layout, model.Weights(), programs, shape, slabs)
	must(t, err)
	if m.tower != nil {
		res.AddEncoder(layout, backend.ShapeOf(m.tower.p, m.tower.rows))
	}
	m.dev, err = r.Opener.Open(facts, r.Settings, res)
	must(t, err)
	t.Cleanup(func() { m.dev.Close() })
	if got := m.dev.Usage(); got != res.Arenas {
		t.Errorf("arenas take %v, reserved %v", got, res.Arenas)
	}
	for i := range res.Weights {
		if !res.Weights[i].Unloaded {
			must(t, m.dev.Pack(i, ck))
		}
	}
	if m.slot = -1; r.LoRA != "" {
		a, err := checkpoint.ReadAdapter(r.LoRA, build.LoRA.Rank)
		must(t, err)
		defer a.Close()
		m.slot = loraSlot
		must(t, model.(models.Adaptable).PlaceAdapter(a, loraSlot, m.dev.(backend.AdapterWriter).WriteRows))
	}
	m.exe, err = m.dev.Compile(p)
	must(t, err)
	if m.tower != nil {
		m.tower.exe, err = m.dev.Compile(m.tower.p)
		must(t, err)
	}
	return m
}

// place assigns arena offsets to all pages of a sequence with that many rows, class after class,
// and returns the arena's size in bytes.
func (m *goldenModel) place(rows int) int64 {
	var slab, end int64
	for _, c := range m.classes {
		slab = max(slab, 3*c.PageBytes())
	}
	m.first = make([]int32, len(m.classes))
	m.blocks = make([]int32, len(m.classes))
	for i := range m.classes {
		c := &m.classes[i]
		c.SlabBytes, c.PagesPerSlab = slab, int(slab/c.PageBytes())
		n := 1
		if c.State == nil {
			n = (rows + c.BlockSize - 1) / c.BlockSize
		}
		c.MaxPages = n
		if c.Window > 0 {
			c.MaxPages = 2 * ((c.Window-2+c.BlockSize-1)/c.BlockSize + 1)
		}
		m.first[i], m.blocks[i] = int32(end/slab)*int32(c.PagesPerSlab), int32(n)
		end += (int64(n) + int64(c.PagesPerSlab) - 1) / int64(c.PagesPerSlab) * slab
	}
	return end
}

// tables writes the page tables for a step of positions from to to−1, with pages in a shuffled
// order.
func (m *goldenModel) tables(s *backend.Step, from, to int) {
	for i, c := range m.classes {
		page := func(block int) int32 { return m.first[i] + m.blocks[i] - 1 - int32(block) }
		for k := range s.Pages[i] {
			s.Pages[i][k] = -1
		}
		if c.State != nil {
			s.Pages[i][0] = m.first[i]
			continue
		}
		for b := c.FirstBlock(from); b*c.BlockSize < from; b++ {
			s.Pages[i][c.Entry(b, from)] = page(b)
		}
		for b := from / c.BlockSize; b*c.BlockSize < to; b++ {
			if e := c.StoreEntry(b, to); e >= 0 {
				s.Pages[i][e] = page(b)
			}
		}
	}
}

// step runs tokens, whose positions start at at, and returns a copy of their logits.
func (m *goldenModel) step(t testing.TB, tokens []int32, at, set int) [][]float32 {
	t.Helper()
	return goldenRanks{m}.step(t, tokens, at, set)
}

// launch starts a step of tokens, whose positions start at at.
func (m *goldenModel) launch(t testing.TB, tokens []int32, at, set int) {
	t.Helper()
	s, n := m.dev.Step(set), len(tokens)
	for i, id := range tokens {
		s.Tokens[i], s.Positions[i], s.Seq[i], s.Rows[i] = id, int32(at+i), 0, int32(i)
		s.Sampling[i] = backend.SampleRow{TopP: 1, Repetition: 1}
		if s.Adapters != nil {
			s.Adapters[i] = m.slot
		}
	}
	s.First[0], s.First[1] = 0, int32(n)
	m.tables(s, at, at+n)
	m.placeItems(t, s, at, n)
	if m.alter != nil {
		m.alter(s, m.g, n)
	}
	b := backend.Binding{Set: set, Tokens: n, Seqs: 1, Samples: n}
	if m.graphs {
		b.Graph = backend.Graph{Kind: backend.Decode, Tokens: n, Seqs: 1, Samples: n}
		must(t, m.dev.(backend.Capturer).Capture(m.exe, set, b.Graph))
	}
	must(t, m.dev.Launch(m.exe, b))
}

// rows returns a copy of the logits of n rows.
func (m *goldenModel) rows(n int) [][]float32 {
	if m.sends {
		return nil
	}
	b := m.dev.(backend.Inspector).Scratch(m.logits, m.exe.Program())
	vocab := m.exe.Program().Vocab
	var out [][]float32
	for i := range n {
		row := unsafe.Slice((*float32)(unsafe.Pointer(&b[4*i*vocab])), vocab)
		out = append(out, append([]float32(nil), row...))
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
