// Package runner runs the scheduler's steps on a device: it fills the step buffers, launches the
// recorded program and returns what was sampled. It must not decide anything about requests or
// scheduling. Start reading at Runner.Launch in runner.go.
package runner

import (
	"fmt"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/sample"
	"vapp.dev/engine/sched"
)

// Runner runs steps on one device. It is not safe for concurrent use.
type Runner struct {
	dev     backend.Device
	exe     backend.Executable
	shape   backend.StepShape
	classes []backend.KVClass
	moves   []backend.PageMove // of the step being launched
	tower   tower
	graphs  backend.Graphs
}

// New compiles the reservation's programs: the step and, if there is one, the encoder of items. Steps run without graphs
// until Capture has returned.
func New(dev backend.Device, r backend.Reservation) (*Runner, error) {
	exe, err := dev.Compile(r.Programs[0])
	if err != nil {
		return nil, err
	}
	out := &Runner{dev: dev, exe: exe, shape: r.Step, classes: r.Classes}
	for _, p := range r.Programs[1:] {
		if err := out.tower.compile(dev, p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Replay is how a step was launched: the graph that it ran by, or the reason for running without.
type Replay struct {
	Graph backend.Graph
	Why   backend.NoGraph
}

// Launch fills a set of step buffers and starts the step; it does not wait for it. The caller
// must have called Wait for the set's previous step.
func (r *Runner) Launch(set int, s *sched.Step) (Replay, error) {
	if s.Tokens > r.shape.Tokens || len(s.Rows) > r.shape.Seqs || s.Samples > r.shape.Samples {
		return Replay{}, fmt.Errorf("runner: a step of %d tokens, %d sequences, %d sampled rows exceeds its buffers of %d, %d, %d",
			s.Tokens, len(s.Rows), s.Samples, r.shape.Tokens, r.shape.Seqs, r.shape.Samples)
	}
	if err := r.move(s.Moves); err != nil {
		return Replay{}, err
	}
	if len(s.Encodes) > 0 {
		if err := r.tower.run(s); err != nil {
			return Replay{}, err
		}
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

// move copies pages between the device and swap space.
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

// pack writes sequence i of the step, whose first token row is t, to the step buffers. It returns
// the first token row of the next sequence.
func (r *Runner) pack(b *backend.Step, row *sched.Row, i, t int) int {
	b.First[i] = int32(t)
	for k := range row.Count {
		b.Positions[t+k] = int32(row.From + k)
		b.Seq[t+k] = int32(i)
		if b.Adapters != nil {
			b.Adapters[t+k] = row.Seq.Adapter()
		}
	}
	if b.Encoded != nil {
		row.Seq.Encoded(row.From, row.Count, b.Encoded[t:], b.ItemEnd[t:])
	}
	if b.EncodedNext != nil {
		copy(b.EncodedNext[t:], b.Encoded[t+1:t+row.Count])
		b.EncodedNext[t+row.Count-1] = row.NextEncoded
	}
	if b.MRopePositions != nil {
		row.Seq.Positions(row.From, row.Count, b.MRopePositions[r.shape.Axes*t:])
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

// table writes the page table of class c for one sequence: all its pages or, for a window class,
// in the first half the pages that the step reads and in the second those that it stores to.
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

// rows writes the sampled rows of sequence i: its prompt logprobs, then the row of its last
// position. That row samples the next token, with one more row after each proposal, or it has
// the known next token as its target.
func (r *Runner) rows(b *backend.Step, row *sched.Row, i, t int) {
	q := row.Seq
	p := q.Params()
	at := func(pos int) sample.At {
		return sample.At{Seq: int32(i), Seed: q.Seed(), Position: pos + 1, Prompt: len(q.Prompt()), Output: q.Output()}
	}
	for k := range row.Targets {
		pos := row.TargetPos + k - 1 // its logits predict the target
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

// Wait blocks until the step of a set has run and returns what it sampled. The result refers to
// the set's buffers, so it is valid until the set's next Launch.
func (r *Runner) Wait(set int, s *sched.Step) (sched.Result, error) {
	if err := r.dev.Wait(set); err != nil {
		return sched.Result{}, err
	}
	if len(s.Encodes) > 0 {
		if err := r.tower.wait(s); err != nil {
			return sched.Result{}, err
		}
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

// Output returns output row n of a set's step of a pooling model. The slice is a part of the
// set's buffers.
func (r *Runner) Output(set, n int) []float32 {
	w := r.shape.OutputCols
	return r.dev.Step(set).Outputs[n*w : (n+1)*w]
}

// Mask returns the tokens that a grammar allowed in sampled row n of a set, one bit for each id,
// nil if no grammar constrained the row. The slice is a part of the set's buffers.
func (r *Runner) Mask(set, n int) []uint32 {
	b := r.dev.Step(set)
	if b.Sampling[n].Flags&backend.UseGrammar == 0 {
		return nil
	}
	return b.Grammar[n*b.Words:][:b.Words]
}

// Logprob holds the log probabilities of a sampled row, before any logit edit.
type Logprob struct {
	Logprob float32
	Rank    int32 // number of tokens at least as likely; 1 is the best
	// TopIDs and TopProbs are the likeliest tokens, best first.
	TopIDs   []int32
	TopProbs []float32
}

// Logprob returns the logprobs of sampled row n of a set, with the top likeliest tokens. The
// slices are parts of the set's buffers.
func (r *Runner) Logprob(set, n, top int) Logprob {
	b := r.dev.Step(set)
	w := n * r.shape.Logprobs
	return Logprob{
		Logprob: b.Logprob[n], Rank: b.Rank[n],
		TopIDs: b.TopIDs[w : w+top], TopProbs: b.TopProbs[w : w+top],
	}
}
