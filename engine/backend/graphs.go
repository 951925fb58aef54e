package backend

import (
	"fmt"
	"slices"
)

// Graphs says which steps are captured into graphs, in vLLM's words.
type Graphs struct {
	// Mode is "none", "piecewise", "full", "full_decode_only" or "full_and_piecewise"; "" is
	// none.
	Mode  string
	Sizes []int // tokens of the captured steps, ascending
	// Query is how many tokens each sequence of a decoding step has: one and those that are
	// proposed; 0: 1.
	Query int
}

// GraphKind is how much of a step one graph holds.
type GraphKind uint8

// The kinds.
const (
	// Eager is no graph: every op is launched by itself.
	Eager GraphKind = iota
	// Piecewise is a graph for each run of ops between those that look at sequences.
	Piecewise
	// Full is one graph up to the rows that are sampled, of any mix of sequences.
	Full
	// Decode is one graph of all ops, of steps whose sequences have Query tokens each.
	Decode
)

// String is the kind's name in goldens and errors: vLLM calls both of the last two FULL.
func (k GraphKind) String() string {
	return [...]string{"eager", "piecewise", "full", "decode"}[k]
}

// Graph is a captured step: its kind, and the rows it was captured with.
type Graph struct {
	Kind    GraphKind
	Tokens  int
	Seqs    int // 0 of Piecewise: what looks at sequences is launched by itself
	Samples int // 0 but of Decode: what follows the sampled rows is launched by itself
}

// String is what a golden prints: "decode 8 (8 sequences, 8 rows)".
func (g Graph) String() string {
	if g.Kind == Eager {
		return "eager"
	}
	return fmt.Sprintf("%v %d (%d sequences, %d rows)", g.Kind, g.Tokens, g.Seqs, g.Samples)
}

// NoGraph is why a step runs without one.
type NoGraph uint8

// The reasons.
const (
	HasGraph     NoGraph = iota
	NoneCaptured         // the mode is none, or left no size: it is what was asked for
	TooManyTokens
	NotDecoding // full_decode_only, and a sequence computes more or less than its next token
)

// String is the reason's name in metrics; "" of HasGraph.
func (n NoGraph) String() string {
	return [...]string{"", "none_captured", "too_many_tokens", "not_decoding"}[n]
}

// NoGraphs lists all reasons of steps without a graph.
func NoGraphs() []NoGraph { return []NoGraph{NoneCaptured, TooManyTokens, NotDecoding} }

// Capturer is what a Device has that captures steps. A graph belongs to an Executable and a
// set of step buffers.
type Capturer interface {
	// Capture makes the graphs of a step of g on the buffers of a set; nothing runs. Rows of
	// the buffers need not be filled.
	Capture(e Executable, set int, g Graph) error
	// GraphBytes is the device's memory that graphs took so far.
	GraphBytes() int64
}

// query is Query, at least 1.
func (g Graphs) query() int { return max(1, g.Query) }

// decode says that the mode captures decoding steps whole; mixed, what it captures of others.
func (g Graphs) decode() bool { return g.Mode == "full_decode_only" || g.Mode == "full_and_piecewise" }

func (g Graphs) mixed() GraphKind {
	switch g.Mode {
	case "piecewise", "full_and_piecewise":
		return Piecewise
	case "full":
		return Full
	}
	return Eager
}

// of is the graph of a kind for n tokens of steps of b.
func (g Graphs) of(k GraphKind, n int, b Bucket) Graph {
	switch k {
	case Full:
		return Graph{Kind: k, Tokens: n, Seqs: min(n, b.Seqs)}
	case Decode:
		return Graph{Kind: k, Tokens: n, Seqs: n / g.query(), Samples: n}
	}
	return Graph{Kind: k, Tokens: n}
}

// fits says that a decoding step of n tokens is one of b.
func (g Graphs) fits(n int, b Bucket) bool {
	return n%g.query() == 0 && n/g.query() <= b.Seqs && n <= b.Samples
}

// Captures lists the graphs of a program of bucket b in the order in which they are captured,
// the largest first, as vLLM does: a failure for lack of memory comes early.
func (g Graphs) Captures(b Bucket) []Graph {
	var out []Graph
	for _, n := range slices.Backward(g.Sizes) {
		if k := g.mixed(); k != Eager && n <= b.Tokens {
			out = append(out, g.of(k, n, b))
		}
	}
	for _, n := range slices.Backward(g.Sizes) {
		if g.decode() && g.fits(n, b) {
			out = append(out, g.of(Decode, n, b))
		}
	}
	return out
}

// Choose is the graph of a step of t tokens; decoding says that each of its sequences has
// Query tokens, all of them sampled. It is the smallest captured one that holds the step, a
// whole one before pieces; of a step without one the reason.
func (g Graphs) Choose(t int, decoding bool, b Bucket) (Graph, NoGraph) {
	mixed := g.mixed()
	if len(g.Sizes) == 0 || mixed == Eager && !g.decode() {
		return Graph{}, NoneCaptured
	}
	if mixed == Eager && !decoding {
		return Graph{}, NotDecoding
	}
	at, _ := slices.BinarySearch(g.Sizes, t)
	if at == len(g.Sizes) || g.Sizes[at] > b.Tokens {
		return Graph{}, TooManyTokens
	}
	n := g.Sizes[at]
	switch {
	case decoding && g.decode() && g.fits(n, b):
		return g.of(Decode, n, b), HasGraph
	case mixed != Eager:
		return g.of(mixed, n, b), HasGraph
	}
	return Graph{}, TooManyTokens
}

// Segment is a run of a program's ops, From to To−1: one graph, or launches.
type Segment struct {
	From, To int
	Graph    bool
}

// Segments cuts p for a graph of a kind. What looks at sequences (attention and the delta
// rule, what they keep) has shapes of its own in every step, and so have the rows that are
// sampled: in pieces both are launched, and a run of one op between them is too, which a
// graph would not make any shorter.
func Segments(p *Program, k GraphKind) []Segment {
	tail := slices.IndexFunc(p.Ops, func(op Op) bool {
		switch op.(type) {
		case Gather, GatherLast, Sample, OutputRows:
			return true
		}
		return false
	})
	if tail < 0 || k == Decode {
		tail = len(p.Ops)
	}
	var out []Segment
	add := func(from, to int, graph bool) {
		if last := len(out) - 1; last >= 0 && !graph && !out[last].Graph {
			out[last].To = to
		} else if from < to {
			out = append(out, Segment{from, to, graph})
		}
	}
	switch k {
	case Eager:
		add(0, len(p.Ops), false)
		return out
	case Full, Decode:
		add(0, tail, true)
		add(tail, len(p.Ops), false)
		return out
	}
	for from := 0; from < tail; {
		to := from + 1
		for to < tail && bySequence(p.Ops[to]) == bySequence(p.Ops[from]) {
			to++
		}
		add(from, to, !bySequence(p.Ops[from]) && to > from+1)
		from = to
	}
	add(tail, len(p.Ops), false)
	return out
}

// bySequence tells the ops whose work is shared out by sequences.
func bySequence(op Op) bool {
	switch op.(type) {
	case Attention, StoreKV, StoreTokens, Conv, DeltaNet:
		return true
	}
	return false
}

// Pad fills the rows behind those of a step up to the graph's: tokens of no sequence, which are
// stored nowhere, sequences without tokens, and sampled rows that ask for nothing and whose
// tokens nobody reads.
func (s *Step) Pad(b Binding) {
	for t := b.Tokens; t < b.Graph.Tokens; t++ {
		s.Tokens[t], s.Positions[t], s.Seq[t] = 0, 0, -1
	}
	if n := len(s.Places); n > 0 {
		axes := n / len(s.Tokens)
		clear(s.Places[b.Tokens*axes : max(b.Tokens, b.Graph.Tokens)*axes])
	}
	for q := b.Seqs; q < b.Graph.Seqs; q++ {
		s.First[q+1] = int32(b.Tokens)
	}
	for r := b.Samples; r < b.Graph.Samples; r++ {
		s.Rows[r] = int32(max(0, min(b.Tokens, b.Graph.Tokens-1)))
		if s.Sampling != nil {
			s.Sampling[r] = SampleRow{TopP: 1, Repetition: 1}
		}
	}
}
