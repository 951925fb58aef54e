package vision

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// readGolden reads a JSON file of testdata, compressed if its name ends in .gz.
func readGolden(t *testing.T, name string, into any) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.NewDecoder(r).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// TestPositionsGolden compares with transformers (testdata/positions.py).
func TestPositionsGolden(t *testing.T) {
	var golden struct {
		Cases []struct {
			Name   string
			Tokens int
			Spans  [][3]int
			Delta  int
			Last   [3]int32
			SHA256 string
		}
	}
	readGolden(t, "positions.json", &golden)
	if len(golden.Cases) != 16 {
		t.Fatalf("%d cases, want 16", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		t.Run(c.Name, func(t *testing.T) {
			var spans []Span
			for _, s := range c.Spans {
				spans = append(spans, Span{At: s[0], Across: s[1], Down: s[2]})
			}
			at, delta, err := Positions(c.Tokens, spans)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := binary.Append(nil, binary.LittleEndian, at)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(raw)
			if got := hex.EncodeToString(sum[:]); got != c.SHA256 || delta != c.Delta || at[c.Tokens-1] != c.Last {
				t.Errorf("positions have digest %s, delta %d, last %v; want %s, %d, %v", got, delta, at[c.Tokens-1], c.SHA256, c.Delta, c.Last)
			}
		})
	}
}

// TestPositions compares a small prompt number by number.
func TestPositions(t *testing.T) {
	at, delta, err := Positions(9, []Span{{At: 1, Across: 3, Down: 2}})
	want := [][3]int32{{0, 0, 0}, {1, 1, 1}, {1, 1, 2}, {1, 1, 3}, {1, 2, 1}, {1, 2, 2}, {1, 2, 3}, {4, 4, 4}, {5, 5, 5}}
	if err != nil || delta != -3 || !slices.Equal(at, want) {
		t.Errorf("got %v, delta %d, %v; want %v, delta -3", at, delta, err, want)
	}
	if at, delta, err = Positions(0, nil); len(at) != 0 || delta != 0 || err != nil {
		t.Errorf("an empty prompt has positions %v, delta %d, %v", at, delta, err)
	}
}

// TestPositionsRefused gives spans that are no part of their prompt.
func TestPositionsRefused(t *testing.T) {
	const most = int(^uint(0) >> 1)
	for _, c := range []struct {
		name  string
		spans []Span
		at    int
		want  string
	}{
		{"empty", []Span{{At: 0, Across: 0, Down: 3}}, 0, "encoded span 0: a grid of 0 × 3 tokens is empty"},
		{"negative", []Span{{At: -1, Across: 1, Down: 1}}, 0, "encoded span 0: it begins at token -1, where an earlier span ends at 0"},
		{"overlap", []Span{{At: 0, Across: 2, Down: 2}, {At: 3, Across: 1, Down: 1}}, 1, "encoded span 1: it begins at token 3, where an earlier span ends at 4"},
		{"too long", []Span{{At: 8, Across: 1, Down: 3}}, 0, "encoded span 0: 1 × 3 tokens from token 8 on, in a prompt of 10"},
		{"behind", []Span{{At: 11, Across: 1, Down: 1}}, 0, "encoded span 0: 1 × 1 tokens from token 11 on, in a prompt of 10"},
		{"overflow", []Span{{At: 2, Across: 4, Down: most}}, 0, "encoded span 0: 4 × 9223372036854775807 tokens from token 2 on, in a prompt of 10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Positions(10, c.spans)
			var refused *SpanError
			if !errors.As(err, &refused) || refused.Span != c.at || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
