package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"vapp.dev/engine/sched"
)

// Pool is what a request wants of the last hidden states of its prompt: rows of
// Engine.Width numbers, after the final norm and, of a classifier, times its matrix.
type Pool uint8

// The ways of pooling.
const (
	NoPool    Pool = iota
	PoolLast       // the last token's row
	PoolMean       // the mean over all tokens, summed in float32 in their order
	PoolFirst      // the first token's row (vLLM: CLS)
	PoolAll        // every token's row
)

// pooled collects the rows of a choice as its steps give them. All but PoolLast read every
// position, so that such a prompt takes nothing from the prefix cache.
type pooled struct {
	how  Pool
	sum  []float32 // or all rows so far
	rows int
	bad  bool // a number was none
}

func newPooled(r Request, width int) *pooled {
	n := width
	if r.Pool == PoolAll {
		n *= len(r.Prompt)
	}
	return &pooled{how: r.Pool, sum: make([]float32, 0, n)}
}

// add takes the next position's row.
func (p *pooled) add(row []float32) {
	for _, x := range row {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			p.bad = true
		}
	}
	switch {
	case p.rows == 0 || p.how == PoolAll:
		p.sum = append(p.sum, row...)
	case p.how == PoolMean:
		for i, x := range row {
			p.sum[i] += x
		}
	}
	p.rows++
}

// done is the result.
func (p *pooled) done() []float32 {
	if p.how == PoolMean {
		for i := range p.sum {
			p.sum[i] /= float32(p.rows)
		}
	}
	return p.sum
}

// Width is how many numbers a row has that a request with a Pool gets; 0: the model
// generates, and such requests are refused.
func (e *Engine) Width() int { return e.width }

// checkPool refuses tokens of a model that pools, and rows of one that generates.
func (e *Engine) checkPool(r Request) error {
	switch {
	case (r.Pool != NoPool) != (e.width > 0):
		return errors.New("the model pools and draws no tokens, or the other way round")
	case r.Pool > PoolAll:
		return fmt.Errorf("pooling %d is unknown", r.Pool)
	case r.Pool != NoPool && len(r.Prompt) > e.opts.MaxModelLen:
		return &TooLongError{Prompt: len(r.Prompt), Limit: e.opts.MaxModelLen, What: "the model's maximum context length"}
	}
	return nil
}

// deliverPooled gives a choice that pools what a committed step brought.
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
	l.ended(c, ev.Finish, now)
	c.stream.push(ev)
}
