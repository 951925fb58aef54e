package enginetest

import (
	"fmt"
	"math"
)

// Golden is one recorded run of the upstream implementation (transformers, float32): a prompt of
// T tokens prefilled in one pass, then N greedy steps with the KV cache. Feeding Tokens() in any
// chunks gives T+N rows of logits; row i predicts the token after position i.
// engine/models/testdata/README.md describes the files.
type Golden struct {
	Facts      GoldenFacts
	InputIDs   []int32      // [T] the prompt, positions 0 to T-1
	DecodeIDs  []int32      // [N] fed at positions T to T+N-1: the reference's own greedy choices
	SampleIDs  []int32      // [S] vocabulary ids whose logits are recorded for every row, ascending
	LastHidden []float32    // [H] output of the final norm at position T-1
	Items      []GoldenItem // images of the prompt, in order
	Positions  []int32      // [3, T+N] time, row and column of each token for rotary angles; nil if they are the positions

	rows []GoldenRow // [T+N]
}

// GoldenRow holds the recorded logits of one position.
type GoldenRow struct {
	TopIDs [2]int32   // ids of the two largest logits of the whole vocabulary, largest first
	Top    [2]float32 // those logits
	Sample []float32  // [S] logits of SampleIDs
	Full   []float32  // [V] all logits, or nil if they were not recorded
}

// Gap returns the difference of the two largest logits. If it is below an engine's error, the
// engine's largest logit may be another one.
func (r GoldenRow) Gap() float32 { return r.Top[0] - r.Top[1] }

// GoldenFacts are the origin of a golden file's numbers.
type GoldenFacts struct {
	Format       int               `json:"format"`
	Architecture string            `json:"architecture"` // Hugging Face class
	VocabSize    int               `json:"vocab_size"`   // V
	Checkpoint   map[string]string `json:"checkpoint"`   // weight file → SHA-256, hex
	Text         string            `json:"text"`         // the prompt's text, empty for random ids
	Compute      string            `json:"compute"`
	Threads      int               `json:"threads"`
	Torch        string            `json:"torch"`
	Transformers string            `json:"transformers"`
}

// Tokens returns the prompt and the decoded tokens, [T+N].
func (g *Golden) Tokens() []int32 {
	return append(append(make([]int32, 0, g.Rows()), g.InputIDs...), g.DecodeIDs...)
}

// Rows returns T+N.
func (g *Golden) Rows() int { return len(g.rows) }

// Row returns the recorded logits of position i, 0 ≤ i < Rows.
func (g *Golden) Row(i int) GoldenRow { return g.rows[i] }

// Spread returns σ, the standard deviation of a row's logits over SampleIDs (root mean square
// over the rows). It is the unit of the small checkpoints' bounds.
func (g *Golden) Spread() float64 {
	var sum float64
	for _, r := range g.rows {
		var mean, square float64
		for _, x := range r.Sample {
			mean += float64(x) / float64(len(r.Sample))
		}
		for _, x := range r.Sample {
			square += (float64(x) - mean) * (float64(x) - mean) / float64(len(r.Sample))
		}
		sum += square
	}
	return math.Sqrt(sum / float64(len(g.rows)))
}

// GoldenDiff is the difference of one row of logits from the reference.
type GoldenDiff struct {
	Max     float32 // largest |Δ| of all recorded logits
	At      int32   // its vocabulary id
	Square  float64 // mean of Δ² over SampleIDs
	Gap     float32 // the reference's gap of this row
	Flipped bool    // the largest logit is not the reference's
}

// Compare compares an engine's logits [V] after position row with all recorded ones of that row.
// It fails if the length is wrong or a logit is not finite.
func (g *Golden) Compare(row int, logits []float32) (GoldenDiff, error) {
	if len(logits) != g.Facts.VocabSize {
		return GoldenDiff{}, fmt.Errorf("row %d has %d logits, the vocabulary has %d", row, len(logits), g.Facts.VocabSize)
	}
	best := 0
	for id, x := range logits {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return GoldenDiff{}, fmt.Errorf("row %d: the logit of token %d is %v", row, id, x)
		}
		if x > logits[best] {
			best = id
		}
	}
	want := g.rows[row]
	d := GoldenDiff{Gap: want.Gap(), Flipped: int32(best) != want.TopIDs[0]}
	see := func(id int32, reference float32) {
		if delta := float32(math.Abs(float64(logits[id] - reference))); delta > d.Max {
			d.Max, d.At = delta, id
		}
	}
	for i, id := range want.TopIDs {
		see(id, want.Top[i])
	}
	for i, id := range g.SampleIDs {
		see(id, want.Sample[i])
		delta := float64(logits[id] - want.Sample[i])
		d.Square += delta * delta / float64(len(g.SampleIDs))
	}
	for id, x := range want.Full {
		see(int32(id), x)
	}
	return d, nil
}

// GoldenTally collects the differences of many rows.
type GoldenTally struct {
	Rows, Flips int
	Max         float32 // largest |Δ| of all rows
	MaxRow      int     // the row of Max
	FlippedGap  float32 // largest gap of the reference among the flipped rows
	square      float64
}

// Add adds one row.
func (t *GoldenTally) Add(row int, d GoldenDiff) {
	t.Rows++
	t.square += d.Square
	if d.Max > t.Max {
		t.Max, t.MaxRow = d.Max, row
	}
	if d.Flipped {
		t.Flips++
		t.FlippedGap = max(t.FlippedGap, d.Gap)
	}
}

// RMS returns the root of the mean Δ² of all rows over SampleIDs. It separates rounding from
// mistakes far better than Max does.
func (t *GoldenTally) RMS() float64 { return math.Sqrt(t.square / float64(max(t.Rows, 1))) }

// GoldenBound is how far an engine may differ from a golden file. README.md of the golden files
// lists the bound of each arithmetic.
type GoldenBound struct {
	Max float32 // limit of |Δ| of every logit
	RMS float64 // limit of GoldenTally.RMS
	Gap float32 // rows with a larger gap must have the reference's largest logit
}

// Times returns the bound scaled by a factor, for bounds in units of Spread.
func (b GoldenBound) Times(sigma float64) GoldenBound {
	return GoldenBound{Max: b.Max * float32(sigma), RMS: b.RMS * sigma, Gap: b.Gap * float32(sigma)}
}

// Within reports whether the rows are within a bound.
func (t *GoldenTally) Within(b GoldenBound) error {
	if t.Rows == 0 {
		return fmt.Errorf("no row was compared")
	}
	if t.Max > b.Max {
		return fmt.Errorf("largest |Δ| of %d rows is %g (row %d), the bound is %g", t.Rows, t.Max, t.MaxRow, b.Max)
	}
	if rms := t.RMS(); rms > b.RMS {
		return fmt.Errorf("rms Δ of %d rows is %g, the bound is %g", t.Rows, rms, b.RMS)
	}
	if t.FlippedGap > b.Gap {
		return fmt.Errorf("top-1 differs in %d of %d rows, at gaps up to %g; the bound is %g", t.Flips, t.Rows, t.FlippedGap, b.Gap)
	}
	return nil
}

// GoldenOf returns a golden without recorded logits: a prompt, and the tokens that follow it.
func GoldenOf(prompt, decoded []int32) *Golden {
	return &Golden{InputIDs: prompt, DecodeIDs: decoded, rows: make([]GoldenRow, len(prompt)+len(decoded))}
}
