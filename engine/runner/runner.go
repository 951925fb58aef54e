// Package runner turns a scheduler's Step into device work: it fills the step
// buffers, launches the recorded program and hands back what was sampled. It
// decides nothing about requests.
package runner

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/sched"
)

// Runner runs steps on one device. It is used by the loop only.
type Runner struct {
	dev     backend.Device
	exe     backend.Executable
	shape   backend.StepShape
	classes []backend.KVClass
	moves   []backend.PageMove // of the step being launched
	graphs  backend.Graphs
}

// New compiles the reservation's program. Steps that graphs capture run by them once
// Capture has made them all.
func New(dev backend.Device, r backend.Reservation) (*Runner, error) {
	if len(r.Programs) != 1 {
		return nil, fmt.Errorf("runner: %d programs instead of one", len(r.Programs))
	}
	exe, err := dev.Compile(r.Programs[0])
	if err != nil {
		return nil, err
	}
	return &Runner{dev: dev, exe: exe, shape: r.Step, classes: r.Classes}, nil
}

// Replay says how a step was launched: by a graph, or for what reason without.
type Replay struct {
	Graph backend.Graph
	Why   backend.NoGraph
}

// Launch fills the buffers of a set and starts the step; it does not wait. The
// set's previous step must have been waited for.
func (r *Runner) Launch(set int, s *sched.Step) (Replay, error) {
	if s.Tokens > r.shape.Tokens || len(s.Rows) > r.shape.Seqs || s.Samples > r.shape.Samples {
		return Replay{}, fmt.Errorf("runner: a step of %d tokens, %d sequences, %d sampled rows exceeds its buffers of %d, %d, %d",
			s.Tokens, len(s.Rows), s.Samples, r.shape.Tokens, r.shape.Seqs, r.shape.Samples)
	}
	if err := r.move(s.Moves); err != nil {
		return Replay{}, err
	}
	b := r.dev.Step(set)
	t := 0
	for i := range s.Rows {
		t = r.pack(b, &s.Rows[i], i, t)
	}
	b.First[len(s.Rows)] = int32(t)
	how := r.replay(s)
	bound := backend.Binding{Set: set, Tokens: s.Tokens, Seqs: len(s.Rows), Samples: s.Samples, Graph: how.Graph}
	r.pad(b, bound)
	return how, r.dev.Launch(r.exe, bound)
}

// move copies pages between the device and its swap space.
func (r *Runner) move(moves []sched.Move) error {
	if len(moves) == 0 {
		return nil
	}
	r.moves = r.moves[:0]
	for _, m := range moves {
		r.moves = append(r.moves, backend.PageMove(m))
	}
	return r.dev.Move(r.moves)
}

// pack writes sequence i of the step, whose first token row is t, and returns
// the next sequence's.
func (r *Runner) pack(b *backend.Step, row *sched.Row, i, t int) int {
	b.First[i] = int32(t)
	for k := range row.Count {
		b.Positions[t+k] = int32(row.From + k)
		b.Seq[t+k] = int32(i)
	}
	if row.Ref >= 0 {
		b.Tokens[t] = int32(-1 - row.Ref)
	} else {
		copy(b.Tokens[t:], row.Tokens)
	}
	for c := range r.classes {
		w := r.shape.MaxPages[c]
		table := b.Pages[c][i*w : (i+1)*w]
		r.table(c, table, row)
	}
	r.rows(b, row, i, t)
	return t + row.Count
}

// table writes the page table of class c for one sequence: all its pages, or of a
// window those that the step reads, then those that it stores to. That of checkpoints is
// written as it is.
func (r *Runner) table(c int, table []int32, row *sched.Row) {
	k, pages := &r.classes[c], row.Seq.Pages(c)
	n := 0
	if k.Window == 0 {
		n = copy(table, pages)
	} else {
		from, to, half := min(k.FirstBlock(row.From), len(pages)), min(k.FirstBlock(row.From+row.Count), len(pages)), len(table)/2
		last := min(len(pages), (row.From+k.BlockSize-1)/k.BlockSize)
		for n = copy(table[:half], pages[from:max(from, last)]); n < half; n++ {
			table[n] = -1
		}
		n += copy(table[half:], pages[to:])
	}
	for ; n < len(table); n++ {
		table[n] = -1
	}
}

// rows writes the sampled rows of sequence i: its prompt logprobs, then its draws,
// one behind each proposal too, as if these had been drawn, or the known token behind
// its last position.
func (r *Runner) rows(b *backend.Step, row *sched.Row, i, t int) {
	q := row.Seq
	p := q.Params()
	at := func(pos int) sample.At {
		return sample.At{Seq: int32(i), Seed: q.Seed(), Position: pos + 1, Prompt: len(q.Prompt()), Output: q.Output()}
	}
	for k := range row.Targets {
		pos := row.TargetPos + k - 1 // whose logits foretell the target
		n := row.Sample + k
		b.Rows[n] = int32(t + pos - row.From)
		if r.shape.OutputCols == 0 {
			p.Target(b, n, at(pos), q.Prompt()[pos+1])
		}
	}
	if row.Draw {
		for k := range 1 + row.Proposed {
			n, pos := row.DrawRow()+k, row.From+row.Count-1-row.Proposed+k
			b.Rows[n] = int32(t + pos - row.From)
			if r.shape.OutputCols > 0 {
				continue
			}
			p.Row(b, n, at(pos))
			if g := q.Grammar(); g != nil && g.Mask(b.Grammar[n*b.Words:][:b.Words]) {
				b.Sampling[n].Flags |= backend.UseGrammar
			}
		}
	}
	if row.Next >= 0 {
		n, pos := row.DrawRow(), row.From+row.Count-1
		b.Rows[n] = int32(t + row.Count - 1)
		p.Known(b, n, at(pos), row.Next)
	}
}

// Wait blocks until the step of a set has run and returns what it sampled. The
// result lies in the set's buffers: it is valid until the set's next Launch.
func (r *Runner) Wait(set int, s *sched.Step) (sched.Result, error) {
	if err := r.dev.Wait(set); err != nil {
		return sched.Result{}, err
	}
	b := r.dev.Step(set)
	if r.shape.OutputCols > 0 {
		return sched.Result{}, nil
	}
	out := sched.Result{Tokens: b.Sampled[:s.Samples], Status: b.Status[:s.Samples], Drafts: b.Drafts[:len(s.Rows)*r.shape.Drafts]}
	if r.shape.Verify > 0 {
		out.Accepted = b.Accepted[:len(s.Rows)]
	}
	return out, nil
}

// Emitted is row n of what a set's step gave of a model that pools. The slice is the
// set's buffer.
func (r *Runner) Output(set, n int) []float32 {
	w := r.shape.OutputCols
	return r.dev.Step(set).Outputs[n*w : (n+1)*w]
}

// Mask returns the tokens that a grammar allowed in sampled row n of a set, one bit an id;
// nil: no grammar constrained it. The slice is the set's buffer.
func (r *Runner) Mask(set, n int) []uint32 {
	b := r.dev.Step(set)
	if b.Sampling[n].Flags&backend.UseGrammar == 0 {
		return nil
	}
	return b.Grammar[n*b.Words:][:b.Words]
}

// Logprob is what a sampled row says of its token: raw log probabilities.
type Logprob struct {
	Logprob float32
	Rank    int32 // tokens at least as likely; 1 is the best
	// TopIDs and TopProbs are the likeliest tokens, best first.
	TopIDs   []int32
	TopProbs []float32
}

// Logprob reads sampled row n of a set, with its top likeliest tokens. The
// slices are the set's buffers.
func (r *Runner) Logprob(set, n, top int) Logprob {
	b := r.dev.Step(set)
	w := n * r.shape.Logprobs
	return Logprob{
		Logprob: b.Logprob[n], Rank: b.Rank[n],
		TopIDs: b.TopIDs[w : w+top], TopProbs: b.TopProbs[w : w+top],
	}
}
