package enginetest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const goldenDir = "../models/testdata/golden"

// small is a golden file of vocabulary 4, two prompt rows, an image and one step.
func small(t testing.TB, edit func(facts map[string]any, tensors map[string]any)) []byte {
	t.Helper()
	facts := map[string]any{"format": 1, "vocab_size": 4, "checkpoint": map[string]string{}}
	header := map[string]any{}
	var data []byte
	put := func(name, dtype string, shape []int, words ...float32) {
		from := len(data)
		for _, w := range words {
			bits := math.Float32bits(w)
			if dtype == "I32" {
				bits = uint32(int32(w))
			}
			data = binary.LittleEndian.AppendUint32(data, bits)
		}
		header[name] = map[string]any{"dtype": dtype, "shape": shape, "data_offsets": []int{from, len(data)}}
	}
	put("input_ids", "I32", []int{2}, 0, 3)
	put("decode_ids", "I32", []int{1}, 2)
	put("sample_ids", "I32", []int{2}, 0, 3)
	put("last_hidden", "F32", []int{1}, 0.5)
	put("top2_ids", "I32", []int{2, 2}, 1, 0, 2, 3)
	put("top2_logits", "F32", []int{2, 2}, 5, 4, 3, 2.5)
	put("sample_logits", "F32", []int{2, 2}, 4, -1, 0, 2.5)
	put("decode_top2_ids", "I32", []int{1, 2}, 0, 1)
	put("decode_top2_logits", "F32", []int{1, 2}, 9, 1)
	put("decode_sample_logits", "F32", []int{1, 2}, 9, 0)
	put("full_positions", "I32", []int{1}, 1)
	put("full_logits", "F32", []int{1, 4}, 0, -7, 3, 2.5)
	put("items", "I32", []int{1, 5}, 1, 1, 2, 1, 7) // the second token is an image of 2 × 1 patches
	put("encoded", "F32", []int{1, 1}, 0.25)
	put("places", "I32", []int{2, 2}, 0, 0, 1, 0)
	put("positions", "I32", []int{3, 3}, 0, 1, 2, 0, 1, 2, 0, 1, 2)
	if edit != nil {
		edit(facts, header)
	}
	blob, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	header["__metadata__"] = map[string]string{"golden": string(blob)}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...), data...)
}

func TestGoldenCompare(t *testing.T) {
	g, err := ParseGolden(small(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		row    int
		logits []float32
		want   GoldenDiff
	}{
		{"exact", 0, []float32{4, 5, -9, -1}, GoldenDiff{Gap: 1}},
		{"sampled", 0, []float32{4, 5, 0, -1.5}, GoldenDiff{Max: 0.5, At: 3, Square: 0.125, Gap: 1}},
		{"top of the vocabulary", 0, []float32{4, 4.75, 0, -1}, GoldenDiff{Max: 0.25, At: 1, Gap: 1}},
		{"flipped by an id that was not kept", 0, []float32{4, 5, 6, -1}, GoldenDiff{Gap: 1, Flipped: true}},
		{"kept in full", 1, []float32{0, -5, 3, 2.5}, GoldenDiff{Max: 2, At: 1, Gap: 0.5}},
		{"step", 2, []float32{8, 1, 0, 0}, GoldenDiff{Max: 1, At: 0, Square: 0.5, Gap: 8}},
	} {
		got, err := g.Compare(c.row, c.logits)
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	if _, err := g.Compare(0, []float32{1, 2, 3}); err == nil {
		t.Error("three logits were compared with a vocabulary of four")
	}
	if _, err := g.Compare(0, []float32{4, 5, float32(math.NaN()), -1}); err == nil {
		t.Error("NaN was compared")
	}
}

func TestGoldenTally(t *testing.T) {
	var tally GoldenTally
	at := GoldenBound{Max: 0.5, RMS: 0.25, Gap: 0.1}
	if tally.Within(at) == nil {
		t.Error("nothing compared passed")
	}
	tally.Add(3, GoldenDiff{Max: 0.5, Square: 0.125, Gap: 0.1, Flipped: true})
	tally.Add(4, GoldenDiff{Max: 0.2, Gap: 3})
	if err := tally.Within(at); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	for _, b := range []GoldenBound{{0.4, 0.25, 0.1}, {0.5, 0.24, 0.1}, {0.5, 0.25, 0.05}} {
		if tally.Within(b) == nil {
			t.Errorf("%+v passed", b)
		}
	}
}

func TestGoldenSpread(t *testing.T) {
	g, err := ParseGolden(small(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	// Rows (4, -1), (0, 2.5), (9, 0): half the distances are 2.5, 1.25, 4.5.
	want := math.Sqrt((2.5*2.5 + 1.25*1.25 + 4.5*4.5) / 3)
	if got := g.Spread(); math.Abs(got-want) > 1e-12 {
		t.Errorf("spread is %g, want %g", got, want)
	}
	if got, want := (GoldenBound{1, 2, 3}).Times(2), (GoldenBound{2, 4, 6}); got != want {
		t.Errorf("twice the bound is %+v, want %+v", got, want)
	}
}

func TestParseGoldenRefuses(t *testing.T) {
	tensor := func(name, key string, value any) func(_, h map[string]any) {
		return func(_, h map[string]any) { h[name].(map[string]any)[key] = value }
	}
	for want, edit := range map[string]func(facts, header map[string]any){
		"format 2":                 func(f, _ map[string]any) { f["format"] = 2 },
		"vocabulary of 1073741824": func(f, _ map[string]any) { f["vocab_size"] = 1 << 30 },
		"input_ids has 3":          func(f, _ map[string]any) { f["vocab_size"] = 3 },
		"last_hidden is":           func(_, h map[string]any) { delete(h, "last_hidden") },
		"sample_logits is I32":     tensor("sample_logits", "dtype", "I32"),
		"[2 9223372036854775807]":  tensor("top2_logits", "shape", []int64{2, math.MaxInt64}),
		"at [-8 0]":                tensor("sample_ids", "data_offsets", []int{-8, 0}),
		"at [0 1048576]":           tensor("sample_ids", "data_offsets", []int{0, 1 << 20}),
		"full_logits is":           tensor("full_logits", "shape", []int{2, 2}),
		"two largest at row":       tensor("top2_logits", "data_offsets", []int{56, 72}),
		"items has [0 3 2 0 3]":    tensor("items", "data_offsets", []int{0, 20}),
		"encoded is F32 [2 1]":     tensor("encoded", "shape", []int{2, 1}),
		"places is I32 [1 2]":      tensor("places", "shape", []int{1, 2}),
		"positions is I32 [2 3]":   tensor("positions", "shape", []int{2, 3}),
	} {
		_, err := ParseGolden(small(t, edit))
		if !errors.Is(err, ErrGolden) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestGoldenItems reads the image of a prompt.
func TestGoldenItems(t *testing.T) {
	g, err := ParseGolden(small(t, nil))
	if err != nil || len(g.Items) != 1 || len(g.Positions) != 9 {
		t.Fatalf("%+v, %v", g, err)
	}
	i := g.Items[0]
	if i.At != 1 || i.End() != 2 || i.Patches() != 2 || !slices.Equal(i.Columns, []int32{0, 1}) || !slices.Equal(i.Rows, []int32{0, 0}) || i.Encoded[0] != 0.25 {
		t.Errorf("%+v", i)
	}
	if x, n := g.ItemAt(1); x != &g.Items[0] || n != 0 {
		t.Errorf("position 1: %+v, token %d", x, n)
	}
	if x, _ := g.ItemAt(0); x != nil {
		t.Errorf("position 0: %+v", x)
	}
	// The first colours of seed 7, computed by testdata/tiny_media.py.
	if got := i.Pixels(3); !slices.Equal(got, []byte{24, 35, 115, 255, 141, 114}) || i.Colours()[255] != 255.0/256 {
		t.Errorf("pixels %v", got)
	}
}

func FuzzParseGolden(f *testing.F) {
	f.Add(small(f, nil))
	f.Add([]byte{})
	if data, err := os.ReadFile(filepath.Join(goldenDir, "tiny-bias.safetensors")); err == nil {
		f.Add(data[:2048])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGolden(data)
		if err != nil || g.Facts.VocabSize > 1<<16 { // a row of so many logits takes long
			return
		}
		for _, x := range g.Items {
			if len(x.Columns) != x.Patches() || len(x.Rows) != x.Patches() || x.End() > len(g.InputIDs) || len(x.Encoded) != x.Tokens*len(g.LastHidden) {
				t.Fatalf("%+v", x)
			}
		}
		logits := make([]float32, g.Facts.VocabSize)
		for i := range g.Rows() {
			if _, err := g.Compare(i, logits); err != nil {
				t.Fatal(err)
			}
		}
		if len(g.Tokens()) != g.Rows() {
			t.Fatalf("%d tokens, %d rows", len(g.Tokens()), g.Rows())
		}
	})
}
