package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"vapp.dev/engine/sched"
)

// PoolingMode is how a request pools the last hidden states of its prompt into rows of
// Engine.Width numbers. The states are taken after the final norm and, for a classifier,
// multiplied by its matrix.
type PoolingMode uint8

// The pooling modes.
const (
	NoPooling    PoolingMode = iota
	PoolingLast              // the last token's row
	PoolingMean              // the mean over all tokens, summed in float32 in their order
	PoolingFirst             // the first token's row (vLLM: CLS)
	PoolingAll               // every token's row
)

// pooled collects the rows of a choice from its steps. Every mode except PoolingLast needs the
// rows of all positions, so such a prompt takes nothing from the prefix cache.
type pooled struct {
	mode PoolingMode
	sum  []float32 // the sum of the rows so far; for PoolingAll, all of them
	rows int
	bad  bool // a number was NaN or infinite
}

func newPooled(r Request, width int) *pooled {
	n := width
	if r.Pooling == PoolingAll {
		n *= len(r.Prompt)
	}
	return &pooled{mode: r.Pooling, sum: make([]float32, 0, n)}
}

// add adds the row of the next position.
func (p *pooled) add(row []float32) {
	for _, x := range row {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			p.bad = true
		}
	}
	switch {
	case p.rows == 0 || p.mode == PoolingAll:
		p.sum = append(p.sum, row...)
	case p.mode == PoolingMean:
		for i, x := range row {
			p.sum[i] += x
		}
	}
	p.rows++
}

// done returns the result.
func (p *pooled) done() []float32 {
	if p.mode == PoolingMean {
		for i := range p.sum {
			p.sum[i] /= float32(p.rows)
		}
	}
	return p.sum
}

// Width returns how many numbers each row of a pooling request's result has. It is 0 if the
// model generates tokens; pooling requests are then refused.
func (e *Engine) Width() int { return e.width }

// checkPooling refuses generation by a pooling model and pooling by a generating model.
func (e *Engine) checkPooling(r Request) error {
	switch {
	case (r.Pooling != NoPooling) != (e.width > 0):
		return errors.New("a pooling model takes only pooling requests, and a generating model takes none")
	case r.Pooling > PoolingAll:
		return fmt.Errorf("pooling %d is unknown", r.Pooling)
	case r.Pooling != NoPooling && len(r.Prompt) > e.opts.MaxModelLen:
		return &TooLongError{Prompt: len(r.Prompt), Limit: e.opts.MaxModelLen, What: "the model's maximum context length"}
	}
	return nil
}

// deliverPooled adds the rows of a committed step to a pooling choice, and pushes the result
// after the last one.
func (l *loop) deliverPooled(set int, o sched.Output, c *choice, now time.Time) {
	for k := range o.Targets {
		c.pooled.add(l.runner.Output(set, o.TargetRow+k))
	}
	if o.Finish == sched.NotFinished {
		return
	}
	c.pooled.add(l.runner.Output(set, o.Row))
	c.stats.CachedTokens = o.Seq.Cached()
	ev := Event{Token: -1, StopToken: -1, Finish: FinishStop, Cached: o.Seq.Cached(), Pooled: slices.Clip(c.pooled.done()), At: now}
	if c.pooled.bad {
		ev.Finish, ev.Err, ev.Pooled = FinishError, ErrNotNumbers, nil
	}
	l.retire(c, ev.Finish, now)
	c.stream.push(ev)
}
