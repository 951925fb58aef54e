package backend

import (
	"fmt"
	"slices"
)

// Graphs selects the steps that are captured into CUDA graphs, in vLLM's terms.
type Graphs struct {
	// Mode is "none", "piecewise", "full", "full_decode_only" or "full_and_piecewise"; "":
	// none.
	Mode  string
	Sizes []int // tokens of the captured steps, ascending
	// Query is how many tokens each sequence of a decode step has: one and the proposals;
	// 0: 1.
	Query int
}

// GraphKind is how much of a step one graph holds.
type GraphKind uint8

// The kinds.
const (
	// Eager is no graph: every op is launched separately.
	Eager GraphKind = iota
	// Piecewise is a graph for each run of ops between those that depend on sequences.
	Piecewise
	// Full is one graph of all ops before the sampled rows are gathered, for any mix of
	// sequences.
	Full
	// Decode is one graph of all ops, for steps whose sequences have Query tokens each.
	Decode
)

// String returns the kind's name in goldens and errors. vLLM calls both of the last two FULL.
func (k GraphKind) String() string {
	return [...]string{"eager", "piecewise", "full", "decode"}[k]
}

// Graph is a captured step: its kind, and the rows it was captured with.
type Graph struct {
	Kind    GraphKind
	Tokens  int
	Seqs    int // 0 for Piecewise: ops that depend on sequences are not in a graph
	Samples int // 0 except for Decode: ops on sampled rows are not in other graphs
}

// String returns the graph's text in goldens: "decode 8 (8 sequences, 8 rows)".
func (g Graph) String() string {
	if g.Kind == Eager {
		return "eager"
	}
	return fmt.Sprintf("%v %d (%d sequences, %d rows)", g.Kind, g.Tokens, g.Seqs, g.Samples)
}

// NoGraph is the reason why a step runs without a graph.
type NoGraph uint8

// The reasons.
const (
	HasGraph     NoGraph = iota
	NoneCaptured         // the profile disables graphs: mode none, or no size
	TooManyTokens
	NotDecoding // full_decode_only, and a sequence computes more or less than its next token
)

// String returns the reason's name in metrics; "" for HasGraph.
func (n NoGraph) String() string {
	return [...]string{"", "none_captured", "too_many_tokens", "not_decoding"}[n]
}

// NoGraphs lists all reasons of steps without a graph.
func NoGraphs() []NoGraph { return []NoGraph{NoneCaptured, TooManyTokens, NotDecoding} }

// query returns Query, at least 1.
func (g Graphs) query() int { return max(1, g.Query) }

// decode reports whether the mode captures decode steps as one graph.
func (g Graphs) decode() bool { return g.Mode == "full_decode_only" || g.Mode == "full_and_piecewise" }

// mixed returns the kind of graph that the mode captures for other steps.
func (g Graphs) mixed() GraphKind {
	switch g.Mode {
	case "piecewise", "full_and_piecewise":
		return Piecewise
	case "full":
		return Full
	}
	return Eager
}

// of returns the graph of a kind for n tokens in steps of b.
func (g Graphs) of(k GraphKind, n int, b Bucket) Graph {
	switch k {
	case Full:
		return Graph{Kind: k, Tokens: n, Seqs: min(n, b.Seqs)}
	case Decode:
		return Graph{Kind: k, Tokens: n, Seqs: n / g.query(), Samples: n}
	}
	return Graph{Kind: k, Tokens: n}
}

// fits reports whether b holds a decode step of n tokens.
func (g Graphs) fits(n int, b Bucket) bool {
	return n%g.query() == 0 && n/g.query() <= b.Seqs && n <= b.Samples
}

// Captures lists the graphs of a program of bucket b in capture order: the largest first, as
// in vLLM, so that running out of memory shows early.
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

// Choose returns the graph for a step of t tokens: the smallest captured one that holds the
// step; Decode is preferred to other kinds. decoding means that each sequence has Query
// tokens, all of them sampled. Without a graph, Choose returns the reason.
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

// Segments splits p for a graph of a kind. Ops that depend on sequences (attention, the delta
// rule, and the stores of their state) have other shapes in every step, and so have ops
// on sampled rows. Piecewise launches both without a graph, and also a single op between
// two of them, because a graph of one op saves no launch.
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

// bySequence reports whether an op's work is divided by sequences.
func bySequence(op Op) bool {
	switch op.(type) {
	case Attention, StoreKV, StoreTokens, Conv, DeltaNet, Mamba2:
		return true
	}
	return false
}

// Pad fills the rows between a step's counts and its graph's counts: tokens of no sequence,
// which are not stored; sequences without tokens; and sampled rows with neutral parameters,
// whose tokens are ignored.
func (s *Step) Pad(b Binding) {
	for t := b.Tokens; t < b.Graph.Tokens; t++ {
		s.Tokens[t], s.Positions[t], s.Seq[t] = 0, 0, -1
		if s.Adapters != nil {
			s.Adapters[t] = -1
		}
		if s.Encoded != nil {
			s.Encoded[t], s.ItemEnd[t] = -1, 1
		}
		if s.EncodedNext != nil {
			s.EncodedNext[t] = -1
		}
	}
	if n := len(s.MRopePositions); n > 0 {
		axes := n / len(s.Tokens)
		clear(s.MRopePositions[b.Tokens*axes : max(b.Tokens, b.Graph.Tokens)*axes])
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
