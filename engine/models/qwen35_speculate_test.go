package models

import (
	"math"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// TestQwen35Speculates runs recorded steps op by op, following the ops' documentation: a prompt in
// two chunks, then steps that verify proposals of which none, some or all are right. The tokens
// must equal those that transformers decodes one by one, and the proposals those of its modules for
// the whole sequence at once (testdata/record_mtp.py). So no trace of a rejected proposal remains
// in pages or states.
func TestQwen35Speculates(t *testing.T) {
	ck := openTestdata(t, "tiny-qwen35-mtp")
	const draft = 3
	l := &loader{src: ck, Build: Build{Shard: backend.Whole, Pipe: backend.Whole, Draft: draft}}
	m, err := newQwen35(ck.Config(), l)
	if err != nil || l.err != nil {
		t.Fatal(err, l.err)
	}
	p, err := recordStep(m, kernels.F32, backend.Bucket{Tokens: 32, Seqs: 1, Samples: 1 + draft})
	if err != nil {
		t.Fatal(err)
	}
	s := newStepper(t, ck, p)
	prompt, want, proposed := whole(s.tensor("input.ids")), whole(s.tensor("output.ids")), whole(s.tensor("output.drafts"))
	const cut = 8
	s.step(prompt[:cut], 0, []int{cut - 1}, prompt[cut])
	s.step(prompt[cut:], cut, []int{len(prompt) - cut - 1}, -1)
	var got []int
	for round := 0; ; round++ {
		got = append(got, s.sampled[:s.accepted]...)
		if len(got) > len(want)-draft {
			break
		}
		if expect := proposed[draft*(len(got)-1):][:draft]; !slices.Equal(s.drafts, expect) {
			t.Errorf("after %d tokens %v are proposed, by transformers' modules %v", len(got), s.drafts, expect)
		}
		next := append([]int{got[len(got)-1]}, s.drafts...)
		for i := range round % (draft + 1) { // right proposals, independent of the drafter
			next[1+i] = want[len(got)+i]
		}
		s.step(next, len(prompt)+len(got)-1, []int{0, 1, 2, 3}, -1)
		if right := round % (draft + 1); s.accepted < 1+right {
			t.Errorf("%d of %d right proposals are accepted", s.accepted-1, right)
		}
	}
	if !slices.Equal(got[:len(want)-draft], want[:len(want)-draft]) {
		t.Errorf("speculation gives %v, transformers %v", got, want)
	}
}

func whole(x []float64) (out []int) {
	for _, v := range x {
		out = append(out, int(v))
	}
	return out
}

// stepper is an oracle for the steps of one sequence; pages and states persist between steps.
type stepper struct {
	oracle
	weights                map[backend.WeightID][]float64
	keys, values           map[[2]int][]float64 // by layer and position
	inputs                 map[[2]int][]float64 // by layer and row of the ring
	matrices               map[[2]int][]float64 // by layer and copy
	tokens, rows, sampled  []int
	from, target, accepted int
	kept                   int
	drafts                 []int
}

func newStepper(t *testing.T, ck *checkpoint.Checkpoint, p *backend.Program) *stepper {
	s := &stepper{oracle: oracle{t: t, ck: ck, p: p}, weights: map[backend.WeightID][]float64{}}
	s.keys, s.oracle.values = map[[2]int][]float64{}, map[backend.Value][]float64{}
	s.values, s.inputs, s.matrices = map[[2]int][]float64{}, map[[2]int][]float64{}, map[[2]int][]float64{}
	for i, w := range p.Weights {
		s.weights[backend.WeightID(i)] = s.rowsOf(w)
	}
	return s
}

// rowsOf concatenates the parts of a weight.
func (s *stepper) rowsOf(w backend.WeightSpec) (out []float64) {
	for _, p := range w.Parts {
		switch {
		case p.Values != nil:
			for _, v := range p.Values {
				out = append(out, float64(v))
			}
		case p.Elems > 0:
			out = append(out, s.tensor(p.Tensor)[p.Row0*(p.Elems/p.Rows)+p.Col0:][:p.Elems]...)
		default:
			out = append(out, s.tensor(p.Tensor)[p.Row0*w.Cols:][:p.Rows*w.Cols]...)
		}
	}
	return out
}

// step runs tokens at positions from on and samples rows: greedily, or as target if that is a
// token.
func (s *stepper) step(tokens []int, from int, rows []int, target int) {
	s.tokens, s.from, s.rows, s.target = tokens, from, rows, target
	s.sampled, s.drafts = nil, nil
	for _, op := range s.p.Ops {
		s.op(op)
	}
}

func (s *stepper) in(v backend.Value) []float64 { return s.oracle.values[v] }
func (s *stepper) cols(v backend.Value) int     { return s.p.Values[v].Cols }

// fresh allocates a value with the number of rows that its kind has in the step.
func (s *stepper) fresh(v backend.Value) []float64 {
	n := map[backend.Rows]int{backend.PerToken: len(s.tokens), backend.PerSample: len(s.rows), backend.PerSeq: 1}[s.p.Values[v].Rows]
	y := make([]float64, n*s.cols(v))
	s.oracle.values[v] = y
	return y
}

// at returns the position of a row.
func (s *stepper) at(row int, a *backend.DraftPosition) int {
	if a != nil {
		return s.from + s.kept + a.By
	}
	return s.from + row
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// best returns the index of the largest element, the first one of equals.
func best(x []float64) int { return slices.Index(x, slices.Max(x)) }

func (s *stepper) op(op backend.Op) {
	switch op := op.(type) {
	case backend.Tokens:
		y := s.fresh(op.Out)
		for i, id := range s.tokens {
			y[i] = float64(id)
		}
	case backend.StoreTokens:
	case backend.Embed:
		ids, w, y, n := s.in(op.Ids), s.weights[op.Table], s.fresh(op.Y), s.cols(op.Y)
		for i := range y {
			y[i] = w[int(ids[i/n])*n+i%n]
		}
	case backend.Linear:
		x, w, y, in, n := s.in(op.X), s.weights[op.W], s.fresh(op.Y), s.cols(op.X), s.cols(op.Y)
		for i := range y {
			for k := range in {
				y[i] += x[i/n*in+k] * w[i%n*in+k]
			}
		}
	case backend.Norm:
		s.normalise(op)
	case backend.Angles:
		w, y := s.weights[op.InvFreq], s.fresh(op.Y)
		for i := range y {
			row, k := i/(2*len(w)), i%(2*len(w))
			turn := float64(s.at(row, op.Draft)) * w[k%len(w)]
			if y[i] = math.Cos(turn); k >= len(w) {
				y[i] = math.Sin(turn)
			}
		}
	case backend.Rope:
		s.turn(op)
	case backend.Attention:
		s.attend(op)
	case backend.StoreKV:
		n := s.cols(op.K)
		for r := range len(s.in(op.K)) / n {
			s.keys[[2]int{op.Layer, s.at(r, op.Draft)}] = slices.Clone(s.in(op.K)[r*n:][:n])
			s.values[[2]int{op.Layer, s.at(r, op.Draft)}] = slices.Clone(s.in(op.V)[r*n:][:n])
		}
	case backend.Gate:
		for i, g := range s.in(op.Gate) {
			s.in(op.X)[i] *= sigmoid(g)
		}
	case backend.GLU:
		x, y, n := s.in(op.X), s.fresh(op.Y), s.cols(op.Y)
		for i := range y {
			g := x[i/n*2*n+i%n]
			y[i] = g * sigmoid(g) * x[i/n*2*n+n+i%n]
		}
	case backend.Conv:
		s.conv(op)
	case backend.DeltaNet:
		s.delta(op)
	default:
		s.ends(op)
	}
}

// ends runs the ops of sampling and proposing.
func (s *stepper) ends(op backend.Op) {
	switch op := op.(type) {
	case backend.Gather:
		y, n := s.fresh(op.Y), s.cols(op.X)
		for i, row := range s.rows {
			copy(y[i*n:][:n], s.in(op.X)[row*n:])
		}
	case backend.Sample:
		for i := range s.rows {
			id := best(s.in(op.Logits)[i*s.p.Vocab:][:s.p.Vocab])
			if s.target >= 0 {
				id = s.target
			}
			s.sampled = append(s.sampled, id)
		}
	case backend.DraftInput:
		y := s.fresh(op.Out)
		for i := range y {
			if r := slices.Index(s.rows, i); r >= 0 {
				y[i] = float64(s.sampled[r])
			} else {
				y[i] = s.in(op.Ids)[i+1]
			}
		}
	case backend.Verify:
		s.accepted = 1
		for s.accepted < len(s.rows) && s.sampled[s.accepted-1] == s.tokens[s.rows[s.accepted]] {
			s.accepted++
		}
		s.kept = s.rows[s.accepted-1]
		s.fresh(op.AcceptedRow)[0] = float64(s.kept)
	case backend.GatherAccepted:
		copy(s.fresh(op.Y), s.in(op.X)[s.kept*s.cols(op.X):])
	case backend.Concat:
		y, a, b := s.fresh(op.Y), s.cols(op.A), s.cols(op.B)
		for r := range len(y) / (a + b) {
			copy(y[r*(a+b):], s.in(op.A)[r*a:][:a])
			copy(y[r*(a+b)+a:], s.in(op.B)[r*b:][:b])
		}
	case backend.Propose:
		s.drafts = append(s.drafts, best(s.in(op.Logits)))
		s.fresh(op.Ids)[0] = float64(s.drafts[op.N])
	default:
		s.t.Fatalf("the stepper has no op %s", backend.OpName(op))
	}
}

// TestQwen35HeadHasNoAdapters records the MTP head beside slots of adapters: its own layer has none.
func TestQwen35HeadHasNoAdapters(t *testing.T) {
	ck := openTestdata(t, "tiny-qwen35-mtp")
	b := Build{Shard: backend.Whole, Pipe: backend.Whole, Draft: 2, LoRA: LoRA{Slots: 2, Rank: 8}}
	l := &loader{src: ck, Build: b, activations: kernels.F32}
	m, err := newQwen35(ck.Config(), l)
	if err != nil || l.err != nil {
		t.Fatal(err, l.err)
	}
	if _, err := recordStep(m, kernels.F32, backend.Bucket{Tokens: 32, Seqs: 1, Samples: 3}); err != nil {
		t.Fatal(err)
	}
	adapted := 0
	for _, w := range m.Weights() {
		if w.Adapters.Rank == 0 {
			continue
		}
		if adapted++; w.Group == "drafter" {
			t.Errorf("%s has slots", w.Name)
		}
	}
	if adapted == 0 {
		t.Error("no matrix has slots")
	}
}
