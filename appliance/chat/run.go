package chat

import (
	"context"
	"errors"
	"slices"

	"vapp.dev/engine"
	"vapp.dev/engine/grammar"
)

// Run is a request that is being answered. One goroutine reads it.
type Run struct {
	ID      string
	Model   string
	Created int64  // Unix time
	Role    string // of the reply
	Lead    string // chat with echo: what comes before the reply's text
	Prompts []Prompted
	// Sampling is what the sampler makes of the layers, before they are checked.
	Sampling Sampling

	grammar    *grammar.Grammar // what the replies follow; nil: nothing
	whole      bool             // from their first token, reasoning included
	choices    []*choice
	left       int   // choices that have not ended
	failed     error // what a stream ended with, told after all that came before it
	tellCached bool
	idle       []int // choices that need no engine, not yet reported
	batches    chan batch
	stop       context.CancelFunc
	unwatch    func() bool // the client's leaving no longer matters
}

// Delta is what a choice has gained since its last Delta.
type Delta struct {
	Choice    int    // prompt · n + choice
	Reasoning string // where the settings name a parser for it
	Text      string
	Calls     []CallDelta    // likewise, in the order in which they were made
	Said      []Said         // all of it in its order, when asked for
	Tokens    []int32        // generated, the final stop token included
	Logprobs  []TokenLogprob // when asked for; with echo the prompt's come first
	Finish    string         // "" while it goes on; stop, length, tool_calls, abort
	// Stop is what ended it: a string, a token id (int32), or nil for the
	// tokenizer's EOS and for length.
	Stop any
}

// Usage counts tokens over all prompts and choices so far.
type Usage struct {
	Prompt, Completion int
	Cached             int  // prompt tokens from the prefix cache
	Reasoning          int  // generated tokens of thoughts, where the request asked for the order
	TellCached         bool // the server tells them
}

// batch is what a stream gave at once.
type batch struct {
	choice int
	events []engine.Event
	err    error
}

// open starts reading the streams. One choice is read by Next itself; several
// are read by a goroutine each, which waits while the reader is slow.
func (r *Run) open(ctx context.Context) {
	r.left = len(r.choices)
	for i, c := range r.choices {
		if c.stream == nil {
			r.idle = append(r.idle, i)
		}
	}
	r.unwatch = context.AfterFunc(ctx, r.cancel)
	if r.left == 1 {
		return
	}
	r.batches = make(chan batch, r.left)
	for i, c := range r.choices {
		if c.stream != nil {
			go c.pump(ctx, i, r.batches)
		}
	}
}

func (c *choice) pump(ctx context.Context, i int, to chan<- batch) {
	for {
		evs, err := c.stream.Next(ctx)
		if len(evs) == 0 && err == nil {
			return
		}
		select {
		case to <- batch{i, slices.Clone(evs), err}: // the stream's next ones come before these are read
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Next returns what has come since the last call, waiting for something to
// report. After the end of all choices it returns
// nil, nil. Its errors are *Error, and end the run.
func (r *Run) Next(ctx context.Context) ([]Delta, error) {
	for r.left > 0 {
		out, err := r.advance(ctx)
		if err != nil {
			r.Close()
			return nil, AsError(err)
		}
		if len(out) > 0 {
			return out, nil
		}
	}
	r.Close()
	return nil, nil
}

// advance takes what is there, waiting for the first.
func (r *Run) advance(ctx context.Context) ([]Delta, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	var out []Delta
	for _, i := range r.idle {
		out = r.settle(out, i, r.choices[i].only())
	}
	r.idle = nil
	if len(out) > 0 {
		return out, nil
	}
	if r.batches == nil {
		evs, err := r.choices[0].stream.Next(ctx)
		if len(evs) == 0 && err == nil {
			err = errors.New("a stream ended without a reason")
		}
		return r.take(out, batch{0, evs, err})
	}
	select {
	case b := <-r.batches:
		return r.takeAll(out, b)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// takeAll adds the batches that are ready too, so that one write carries them.
func (r *Run) takeAll(out []Delta, b batch) ([]Delta, error) {
	for n := len(r.choices); ; n-- {
		var err error
		if out, err = r.take(out, b); err != nil || r.failed != nil || n == 0 {
			return out, err
		}
		select {
		case b = <-r.batches:
		default:
			return out, nil
		}
	}
}

func (r *Run) take(out []Delta, b batch) ([]Delta, error) {
	if b.err != nil {
		return nil, b.err
	}
	c := r.choices[b.choice]
	if c.done {
		return out, nil
	}
	var d Delta
	d, r.failed = c.feed(b.events)
	return r.settle(out, b.choice, d), nil
}

// settle adds a delta that says anything and counts the choices that ended.
func (r *Run) settle(out []Delta, i int, d Delta) []Delta {
	d.Choice = i
	if r.choices[i].done {
		r.left--
	}
	if d.Text == "" && d.Reasoning == "" && len(d.Calls) == 0 && len(d.Tokens) == 0 && len(d.Logprobs) == 0 && d.Finish == "" {
		return out
	}
	return append(out, d)
}

// cancel aborts every choice in the engine; it may be called from any goroutine
// and more than once.
func (r *Run) cancel() {
	for _, c := range r.choices {
		if c.stream != nil {
			c.stream.Cancel()
		}
	}
}

// Close aborts what is still running. It is needed when the caller does not read
// to the end, and harmless otherwise.
func (r *Run) Close() {
	if r.unwatch != nil {
		r.unwatch()
	}
	if r.unwatch == nil || r.left > 0 {
		r.cancel()
	}
	r.left = 0
	r.stop()
}

// Usage is the count so far.
func (r *Run) Usage() Usage {
	u := Usage{TellCached: r.tellCached}
	for _, p := range r.Prompts {
		u.Prompt += len(p.Tokens)
	}
	cached := make([]int, len(r.Prompts))
	for _, c := range r.choices {
		u.Completion += c.tokens
		if c.order != nil {
			u.Reasoning += c.order.thought
		}
		cached[c.prompt] = max(cached[c.prompt], c.cached)
	}
	for _, n := range cached {
		u.Cached += n
	}
	return u
}

// Reply is a whole choice.
type Reply struct {
	Prompt int // index into Run.Prompts
	Delta
}

// Wait reads the run to its end and returns all choices in order. With an error
// they hold what had come until then.
func (r *Run) Wait(ctx context.Context) ([]Reply, error) {
	out := make([]Reply, len(r.choices))
	for i, c := range r.choices {
		out[i].Prompt = c.prompt
		out[i].Choice = i
	}
	for {
		ds, err := r.Next(ctx)
		if err != nil {
			return out, err
		}
		if ds == nil {
			return out, nil
		}
		for _, d := range ds {
			o := &out[d.Choice]
			o.Text += d.Text
			o.Reasoning += d.Reasoning
			for _, c := range d.Calls {
				o.Calls = addCall(o.Calls, c)
			}
			o.Tokens = append(o.Tokens, d.Tokens...)
			o.Logprobs = append(o.Logprobs, d.Logprobs...)
			o.Finish, o.Stop = d.Finish, d.Stop
		}
	}
}

// PromptOf is the index into Prompts of a choice.
func (r *Run) PromptOf(choice int) int { return r.choices[choice].prompt }

// Choices is how many there are.
func (r *Run) Choices() int { return len(r.choices) }
