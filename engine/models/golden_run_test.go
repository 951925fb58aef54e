package models_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// bound is how far a run of a golden file with a K/V format may be off: README.md
// of testdata says which bound belongs to which arithmetic. For small
// checkpoints it is in units of Golden.Spread.
type bound func(golden string, kv kernels.Format) enginetest.GoldenBound

// tiny says whether a golden file belongs to a small random checkpoint.
func tiny(golden string) bool { return strings.HasPrefix(golden, "tiny-") }

// goldenRun is one way to compute a recorded run.
type goldenRun struct {
	Opener   backend.Opener
	Settings backend.Settings
	KV       kernels.Format
	Block    int   // tokens a page holds
	Chunks   []int // prompt tokens of each step, the last again until the prompt ends; decode is one by one
}

// checkpointOf is the weights that a golden file was recorded from.
func checkpointOf(t testing.TB, golden string) string {
	t.Helper()
	if !tiny(golden) {
		if _, err := os.Stat(smolLM2); errors.Is(err, fs.ErrNotExist) {
			t.Skipf("not run: %s is absent, make model fetches it", smolLM2)
		}
		return smolLM2
	}
	path := filepath.Join("testdata", golden)
	if gguf := filepath.Join(path, "model.gguf"); fileExists(gguf) {
		return gguf
	}
	return path
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// RunGolden computes the recorded tokens as r says and compares every row of
// logits with the recorded ones: the prompt in chunks, then the recorded steps one
// by one. It returns the differences and the logits, row by row; other
// backends' tests call it with their opener and their bound.
func RunGolden(t testing.TB, r goldenRun, g *enginetest.Golden, path string) (*enginetest.GoldenTally, [][]float32) {
	t.Helper()
	m := openGolden(t, r, g, path)
	tally, all := &enginetest.GoldenTally{}, make([][]float32, 0, g.Rows())
	for at, chunk := 0, 0; at < g.Rows(); chunk++ {
		n := 1
		if at < len(g.InputIDs) {
			n = min(r.Chunks[min(chunk, len(r.Chunks)-1)], len(g.InputIDs)-at)
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

// goldenModel is a model on a device, with one sequence.
type goldenModel struct {
	dev     backend.Device
	exe     backend.Executable
	logits  backend.Value
	classes []backend.KVClass
}

// openGolden loads a checkpoint; its program ends with the logits, nothing is
// sampled, so that they stay in scratch.
func openGolden(t testing.TB, r goldenRun, g *enginetest.Golden, path string) *goldenModel {
	t.Helper()
	ck, err := checkpoint.Open(path)
	must(t, err)
	t.Cleanup(func() { ck.Close() })
	model, err := models.New(ck, models.Build{})
	must(t, err)
	facts, err := r.Opener.Probe()
	must(t, err)
	layout, err := r.Opener.Layout(facts, r.Settings)
	must(t, err)
	m := &goldenModel{classes: model.Classes(r.Block, r.KV)}
	rows := 1
	for _, n := range r.Chunks {
		rows = max(rows, min(n, len(g.InputIDs)))
	}
	pages := (g.Rows() + r.Block - 1) / r.Block
	c := &m.classes[0]
	c.MaxPages, c.PagesPerSlab = pages, 3
	c.SlabBytes = 3 * c.PageBytes()
	p, err := model.Record(&backend.Program{
		Name: "golden", Bucket: backend.Bucket{Tokens: rows, Seqs: 1, Samples: rows}, Classes: m.classes,
	})
	must(t, err)
	last, ok := p.Ops[len(p.Ops)-1].(backend.Sample)
	if !ok {
		t.Fatalf("the program ends with %s, not with sample", backend.OpName(p.Ops[len(p.Ops)-1]))
	}
	p.Ops, m.logits = p.Ops[:len(p.Ops)-1], last.Logits
	shape := backend.StepShape{Tokens: rows, Seqs: 1, Samples: rows, Vocab: model.Vocab(), MaxPages: []int{pages}, Bias: 1, Logprobs: 1}
	res, err := dry.Run(layout, model.Weights(), []*backend.Program{p}, shape, int64((pages+2)/3)*c.SlabBytes)
	must(t, err)
	m.dev, err = r.Opener.Open(facts, r.Settings, res)
	must(t, err)
	t.Cleanup(func() { m.dev.Close() })
	if got := m.dev.Usage(); got != res.Arenas {
		t.Errorf("arenas take %v, reserved %v", got, res.Arenas)
	}
	for i := range res.Weights {
		must(t, m.dev.Pack(i, ck))
	}
	m.exe, err = m.dev.Compile(p)
	must(t, err)
	return m
}

// step feeds tokens at positions from at on and returns a copy of their logits.
func (m *goldenModel) step(t testing.TB, tokens []int32, at, set int) [][]float32 {
	t.Helper()
	s, n := m.dev.Step(set), len(tokens)
	for i, id := range tokens {
		s.Tokens[i], s.Positions[i], s.Seq[i], s.Rows[i] = id, int32(at+i), 0, int32(i)
		s.Sampling[i] = backend.SampleRow{TopP: 1, Repetition: 1}
	}
	s.First[0], s.First[1] = 0, int32(n)
	for i := range s.Pages[0] {
		s.Pages[0][i] = int32(len(s.Pages[0]) - 1 - i) // any order but the obvious one
	}
	must(t, m.dev.Launch(m.exe, backend.Binding{Set: set, Tokens: n, Seqs: 1, Samples: n}))
	must(t, m.dev.Wait(set))
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
