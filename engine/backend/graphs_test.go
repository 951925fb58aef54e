package backend

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"vapp.dev/internal/goldentest"
)

// TestGraphs runs testdata/graphs.txtar. Section "in" has one command a line: the settings,
// the bucket, then steps. Section "out" has the graphs and reasons for them.
func TestGraphs(t *testing.T) {
	const file = "testdata/graphs.txtar"
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var g Graphs
	var b Bucket
	for _, line := range strings.Split(strings.TrimSpace(string(a.Files[0].Data)), "\n") {
		fmt.Fprintln(&out, "#", line)
		word, rest, _ := strings.Cut(line, " ")
		var n int
		switch word {
		case "mode":
			g.Mode = rest
		case "sizes":
			g.Sizes = nil
			for _, f := range strings.Fields(rest) {
				fmt.Sscan(f, &n)
				g.Sizes = append(g.Sizes, n)
			}
		case "query":
			fmt.Sscan(rest, &g.Query)
		case "bucket":
			fmt.Sscan(rest, &b.Tokens, &b.Seqs, &b.Samples)
		case "captures":
			for _, c := range g.Captures(b) {
				fmt.Fprintln(&out, c)
			}
		case "decode", "mixed":
			fmt.Sscan(rest, &n)
			c, why := g.Choose(n, word == "decode", b)
			fmt.Fprintln(&out, strings.TrimSpace(c.String()+" "+why.String()))
			if c.Kind != Eager && !slices.Contains(g.Captures(b), c) {
				t.Errorf("%s: %v is not captured", line, c)
			}
		case "cut":
			for _, s := range Segments(step(), kind(t, rest)) {
				fmt.Fprintln(&out, s.From, s.To, map[bool]string{true: "graph", false: "launched"}[s.Graph])
			}
		default:
			t.Fatalf("unknown command %q", line)
		}
	}
	a.Files = append(a.Files[:1], txtar.File{Name: "out", Data: []byte(out.String())})
	goldentest.CompareArchive(t, file, a)
}

func kind(t *testing.T, word string) GraphKind {
	for k := Eager; k <= Decode; k++ {
		if k.String() == word {
			return k
		}
	}
	t.Fatalf("unknown kind %q", word)
	return Eager
}

// step returns a layer of attention and one of the delta rule, as models record them.
func step() *Program {
	return &Program{Ops: []Op{
		Tokens{}, StoreTokens{}, Embed{}, Angles{}, // 0
		Norm{}, Linear{}, Rope{}, Attention{}, StoreKV{}, Linear{}, Norm{}, GLU{}, // 4
		Norm{}, Linear{}, Conv{}, DeltaNet{}, Norm{}, Linear{}, // 12
		Gather{}, Norm{}, Linear{}, Sample{}, // 18
	}}
}

// TestSegmentsCover: each op of any program is in exactly one segment, in order. Ops that
// depend on sequences are in no piecewise graph.
func TestSegmentsCover(t *testing.T) {
	ops := step().Ops
	for from := range ops {
		for to := from; to <= len(ops); to++ {
			p := &Program{Ops: ops[from:to]}
			for k := Eager; k <= Decode; k++ {
				at := 0
				for i, s := range Segments(p, k) {
					if s.From != at || s.To <= s.From || k == Eager && s.Graph {
						t.Fatalf("%v of ops %d to %d: segment %d is %+v, want it to begin at %d", k, from, to, i, s, at)
					}
					at = s.To
					if s.Graph && k == Piecewise && slices.ContainsFunc(p.Ops[s.From:s.To], bySequence) {
						t.Fatalf("ops %d to %d: graph %+v has an op that depends on sequences", from, to, s)
					}
				}
				if at != len(p.Ops) {
					t.Fatalf("%v of ops %d to %d: %d of %d ops", k, from, to, at, len(p.Ops))
				}
			}
		}
	}
}

// TestPad: rows behind a step's counts belong to no sequence and no request.
func TestPad(t *testing.T) {
	shape := StepShape{Tokens: 8, Seqs: 4, Samples: 4, Vocab: 10, MaxPages: []int{2}, Axes: 3}
	s := shape.Carve(make([]byte, shape.SetBytes()))
	for i := range s.Tokens {
		s.Tokens[i], s.Positions[i], s.Seq[i] = 7, 7, 3
	}
	for i := range s.MRopePositions {
		s.MRopePositions[i] = 7
	}
	for i := range s.Rows {
		s.Rows[i], s.Sampling[i] = 7, SampleRow{Flags: UseTarget, Target: 99, NumTop: 20, HistoryLen: 5}
	}
	s.First[2], s.First[3], s.First[4] = 2, 7, 7
	s.Pad(Binding{Tokens: 2, Seqs: 2, Samples: 2, Graph: Graph{Kind: Decode, Tokens: 4, Seqs: 4, Samples: 4}})
	neutral := SampleRow{TopP: 1, Repetition: 1}
	switch {
	case !slices.Equal(s.Tokens, []int32{7, 7, 0, 0, 7, 7, 7, 7}) || !slices.Equal(s.Positions, s.Tokens):
		t.Error(s.Tokens, s.Positions)
	case !slices.Equal(s.Seq, []int32{3, 3, -1, -1, 3, 3, 3, 3}):
		t.Error(s.Seq)
	case s.MRopePositions[5] != 7 || s.MRopePositions[6] != 0 || s.MRopePositions[11] != 0 || s.MRopePositions[12] != 7:
		t.Error(s.MRopePositions)
	case !slices.Equal(s.First, []int32{0, 0, 2, 2, 2}):
		t.Error(s.First)
	case !slices.Equal(s.Rows, []int32{7, 7, 2, 2}) || s.Sampling[2] != neutral || s.Sampling[1].NumTop != 20:
		t.Error(s.Rows, s.Sampling)
	}
	before := *s
	s.Pad(Binding{Tokens: 8, Seqs: 4, Samples: 4})
	if s.Tokens[7] != before.Tokens[7] {
		t.Error("a step without a graph was padded")
	}
}
