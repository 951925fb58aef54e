package models_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// TestMediaRef checks prompts with images on ref against the bounds of float32 arithmetic.
func TestMediaRef(t *testing.T) {
	runMedia(t, ref.Opener{}, backend.Settings{}, enginetest.BoundFloat, true)
}

// runMedia runs every prompt with images on a backend, in every K/V format, and checks the tower's
// output and the logits. Chunks and pages change no bit if the backend guarantees that.
func runMedia(t *testing.T, o backend.Opener, s backend.Settings, limit bound, bits bool) {
	for name := range mediaSides {
		t.Run(name, func(t *testing.T) {
			for kind := range mediaCases {
				if recordedMedia(name, kind) {
					t.Run(kind, func(t *testing.T) { mediaGolden(t, name, kind, o, s, limit, bits) })
				}
			}
		})
	}
}

// mediaGolden runs a prompt whole, in chunks whose borders are around its images, and in chunks no
// larger than the largest image.
func mediaGolden(t *testing.T, name, kind string, o backend.Opener, s backend.Settings, limit bound, bits bool) {
	g := readMedia(t, name, kind)
	skipPlanned(t, o, s, name, g)
	for _, kv := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		if kv != kernels.F32 && kind != "long" {
			continue // the longest prompt covers rounded K and V
		}
		run := goldenRun{Opener: o, Settings: s, KV: kv, Block: 16, Chunks: []int{1 << 20}}
		if enginetest.Exact(name, limit) {
			run.Build.Dtype = kernels.F32 // towers keep K and V in the activation format, and the reference's is float32
		}
		want := mediaBound(t, run, name, kind, g, limit)
		others := [][]int{{largestItem(g)}, {13, 1, 33}, borders(g, -1), borders(g, 0), borders(g, 1)}
		if kv != kernels.F32 {
			others = others[:2]
		}
		for _, chunks := range others {
			run.Chunks, run.Block = chunks, 48-run.Block
			if got := mediaBound(t, run, name, kind, g, limit); bits {
				sameRows(t, fmt.Sprintf("%v in chunks of %v", kv, chunks), got, want)
			}
		}
	}
}

// skipPlanned skips a test of images on a backend that only plans the tower.
func skipPlanned(t *testing.T, o backend.Opener, s backend.Settings, name string, g *enginetest.Golden) {
	t.Helper()
	ck, err := checkpoint.Open(checkpointOf(t, name))
	must(t, err)
	defer ck.Close()
	b := models.Build{Vision: true}
	if enginetest.Recurrent(name) {
		b.Dtype = kernels.F32 // as RunGolden builds it
	}
	model, err := models.New(ck, b)
	must(t, err)
	facts, err := o.Probe()
	must(t, err)
	layout, err := o.Layout(facts, s)
	must(t, err)
	if err := layout.Runs(model.Weights(), recordTower(t, model, g).p); errors.Is(err, backend.ErrUnsupported) {
		t.Skipf("not run: %v", err)
	}
}

// borders returns the chunks of a prompt that end that many tokens behind the first and behind the
// last token of each image. An image that such a border would split ends its chunk.
func borders(g *enginetest.Golden, by int) []int {
	var ends, out []int
	for _, x := range g.Items {
		ends = append(ends, x.At+min(by, 0), x.End()+max(by, 0))
	}
	at := 0
	for _, end := range append(ends, len(g.InputIDs)) {
		if end > at {
			out, at = append(out, end-at), end
		}
	}
	return out
}

// mediaBound runs a prompt with images, checks its bounds and returns the logits.
func mediaBound(t *testing.T, r goldenRun, name, kind string, g *enginetest.Golden, limit bound) [][]float32 {
	t.Helper()
	tower := &towerTally{}
	r.Encoded = func(image int, rows []float32) { tower.add(t, rows, g.Items[image].Encoded) }
	tally, rows := RunGolden(t, r, g, checkpointOf(t, name))
	sigma, most := g.Spread(), limit(name, r.KV)
	t.Logf("%v in chunks of %v: max |Δ| %.2g σ, rms %.2g σ, %d of %d rows flipped, at gaps up to %.2g σ; tower: max |Δ| %.2g, rms %.2g of its rms", r.KV, r.Chunks,
		float64(tally.Max)/sigma, tally.RMS()/sigma, tally.Flips, tally.Rows, float64(tally.FlippedGap)/sigma, tower.worst(), tower.rms())
	if err := tally.Within(most.Times(sigma)); err != nil {
		t.Error(err)
	}
	if b := enginetest.BoundTower(!enginetest.Exact(name, limit)); tower.images != len(g.Items) || !(tower.worst() <= b.Max) || !(tower.rms() <= b.RMS) {
		t.Errorf("%d of %d images: the tower's output is off by %.2g, rms %.2g; the bound is %.2g / %.2g", tower.images, len(g.Items), tower.worst(), tower.rms(), b.Max, b.RMS)
	}
	keepMedia(r, name, kind, g, tally, most, sigma, tower)
	return rows
}

// towerTally collects the differences of encoded rows from the recorded ones.
type towerTally struct {
	images, n         int
	max, diff, square float64 // largest |Δ|; sums of Δ² and of the reference's squares
}

func (y *towerTally) add(t testing.TB, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d encoded numbers, want %d", len(got), len(want))
	}
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		y.max, y.diff, y.square = max(y.max, d), y.diff+d*d, y.square+float64(w)*float64(w)
	}
	y.images, y.n = y.images+1, y.n+len(want)
}

// worst and rms return |Δ| in units of the root mean square of the encoded rows.
func (y *towerTally) worst() float32 { return float32(y.max / math.Sqrt(y.square/float64(y.n))) }
func (y *towerTally) rms() float64   { return math.Sqrt(y.diff / y.square) }

// mediaMistakes are wrong ways to run a prompt with images, by the checkpoints that they concern: a
// part of the name.
var mediaMistakes = []struct {
	what, of string
	alter    func(s *backend.Step, g *enginetest.Golden, n int)
}{
	{"an image whose tokens do not see the later ones", "gemma4", func(s *backend.Step, _ *enginetest.Golden, n int) {
		for i := range n {
			s.ItemEnd[i] = s.Positions[i] + 1
		}
	}},
	{"embeddings of placeholders", "", func(s *backend.Step, _ *enginetest.Golden, n int) {
		for i := range n {
			s.Encoded[i] = -1
		}
	}},
	{"encoded rows one place late", "", func(s *backend.Step, _ *enginetest.Golden, n int) {
		for i := range n {
			s.Encoded[i] = max(s.Encoded[i]-1, -1)
		}
	}},
	{"positions of text", "qwen35", func(s *backend.Step, _ *enginetest.Golden, n int) {
		for i := range 3 * n {
			s.MRopePositions[i] = s.Positions[i/3]
		}
	}},
	{"rows and columns exchanged", "qwen35", func(s *backend.Step, _ *enginetest.Golden, n int) {
		for i := range n {
			s.MRopePositions[3*i+1], s.MRopePositions[3*i+2] = s.MRopePositions[3*i+2], s.MRopePositions[3*i+1]
		}
	}},
	{"later text counts the tokens of images", "qwen35", func(s *backend.Step, g *enginetest.Golden, n int) {
		for i := range n {
			if at := int(s.Positions[i]); at > g.Items[0].End() {
				s.MRopePositions[3*i] = s.Positions[i]
			}
		}
	}},
}

// TestMediaMistakes checks that the bounds of the recorded prompts show mistakes.
func TestMediaMistakes(t *testing.T) {
	for name := range mediaSides {
		g := readMedia(t, name, "first")
		skipPlanned(t, ref.Opener{}, backend.Settings{}, name, g)
		for _, m := range mediaMistakes {
			if !strings.Contains(name, m.of) {
				continue
			}
			run := goldenRun{Opener: ref.Opener{}, KV: kernels.F32, Block: 16, Chunks: []int{1 << 20}, Alter: m.alter}
			tally, _ := RunGolden(t, run, g, checkpointOf(t, name))
			sigma, most := g.Spread(), enginetest.BoundFloat(name, kernels.F32)
			t.Logf("%s, %s: max |Δ| %.2g σ, rms %.2g σ", name, m.what, float64(tally.Max)/sigma, tally.RMS()/sigma)
			if tally.RMS() < 20*most.RMS*sigma {
				t.Errorf("%s, %s: rms %.2g σ, the bound is %.2g σ", name, m.what, tally.RMS()/sigma, most.RMS)
			}
		}
	}
}

// TestWholeItems checks where chunks end.
func TestWholeItems(t *testing.T) {
	g := readMedia(t, "tiny-gemma4-tower", "adjacent") // text 0 to 6, begin, 8 to 15, end, begin, 18 to 37, end, text
	for _, c := range [][3]int{{0, 4, 4}, {0, 8, 8}, {0, 9, 8}, {0, 15, 8}, {0, 16, 16}, {8, 3, 8}, {8, 8, 8}, {8, 20, 10}, {17, 1, 1}, {18, 19, 20}, {38, 1, 1}} {
		if got := wholeItems(g, c[0], c[1]); got != c[2] {
			t.Errorf("a chunk of %d at %d has %d tokens, want %d", c[1], c[0], got, c[2])
		}
	}
	if got := borders(g, 0); !slices.Equal(got, []int{8, 8, 2, 20, 9}) {
		t.Errorf("borders: %v", got)
	}
}
