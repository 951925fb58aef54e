package models_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// goldenRun is one way to compute a recorded run.
type goldenRun struct {
	Opener   backend.Opener
	Settings backend.Settings
	KV       kernels.Format
	Block    int   // tokens a page holds
	Chunks   []int // prompt tokens of each step, the last again until the prompt ends; decode is one by one
}

// bounds of README.md: for SmolLM2 in logits, for small checkpoints in σ.
var (
	boundsSmol = map[kernels.Format]enginetest.GoldenBound{
		kernels.F32: {Max: 1e-3, RMS: 1e-4, Gap: 1e-3}, kernels.F16: {Max: 0.1, RMS: 0.006, Gap: 0.02}, kernels.BF16: {Max: 1, RMS: 0.05, Gap: 0.05},
	}
	boundsTiny = map[kernels.Format]enginetest.GoldenBound{
		kernels.F32: {Max: 1e-4, RMS: 1e-5, Gap: 1e-4}, kernels.F16: {Max: 0.01, RMS: 0.0015, Gap: 0.01}, kernels.BF16: {Max: 0.1, RMS: 0.013, Gap: 0.05},
	}
)

// checkpointOf is the weights that a golden file was recorded from.
func checkpointOf(t testing.TB, golden string) string {
	t.Helper()
	if len(golden) > 8 && golden[:8] == "smollm2-" {
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
	model, err := models.New(ck, backend.Whole)
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

// TestGoldenTinyRef runs every small checkpoint on ref, in every KV format.
func TestGoldenTinyRef(t *testing.T) {
	for name := range goldens {
		if name[:5] != "tiny-" {
			continue
		}
		g := readGolden(t, name)
		for kv, bound := range boundsTiny {
			t.Run(fmt.Sprintf("%s/%v", name, kv), func(t *testing.T) {
				r := goldenRun{Opener: ref.Opener{}, KV: kv, Block: 16, Chunks: []int{1 << 20}}
				tally, _ := RunGolden(t, r, g, checkpointOf(t, name))
				t.Logf("max |Δ| %.2g σ, rms %.2g σ, %d flips at gaps up to %.2g", float64(tally.Max)/g.Spread(), tally.RMS()/g.Spread(), tally.Flips, tally.FlippedGap)
				if err := tally.Within(bound.Times(g.Spread())); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestGoldenSmolRef(t *testing.T) {
	g := readGolden(t, "smollm2-chat")
	r := goldenRun{Opener: ref.Opener{}, KV: kernels.F32, Block: 16, Chunks: []int{1 << 20}}
	tally, _ := RunGolden(t, r, g, checkpointOf(t, "smollm2-chat"))
	t.Logf("max |Δ| %.2g, rms %.2g, %d flips at gaps up to %.2g", float64(tally.Max), tally.RMS(), tally.Flips, tally.FlippedGap)
	if err := tally.Within(boundsSmol[kernels.F32]); err != nil {
		t.Error(err)
	}
}
