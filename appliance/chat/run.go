package chat

import (
	"context"
	"errors"
	"slices"

	"vapp.dev/engine"
	"vapp.dev/engine/grammar"
)

// Run is a request in progress. Only one goroutine may read it.
type Run struct {
	ID         string
	Model      string
	Created    int64  // Unix time
	Role       string // of the reply
	EchoPrefix string // chat with echo: the text before the reply's own
	Prompts    []EncodedPrompt
	// Sampling holds the parameters in effect, merged from all layers but not checked.
	Sampling Sampling

	grammar      *grammar.Grammar // of the replies; nil: unconstrained
	whole        bool             // grammar covers the whole reply, reasoning included
	choices      []*choice
	left         int   // unfinished choices
	failed       error // error of a stream; reported after the deltas before it
	reportCached bool
	idle         []int // unreported choices that need no engine
	batches      chan batch
	stop         context.CancelFunc
	unwatch      func() bool // detaches the run from ctx, whose end cancels the choices
}

// Delta is the part of a choice since its last Delta.
type Delta struct {
	Choice    int    // prompt × n + index of the choice
	Reasoning string // if the settings name a reasoning parser
	Text      string
	Calls     []CallDelta    // if the settings name a tool parser
	Segments  []Segment      // text, reasoning and calls in their order, if requested
	Tokens    []int32        // generated, the final stop token included
	Logprobs  []TokenLogprob // if requested; with echo the prompt's come first
	Finish    string         // "": unfinished; stop, length, tool_calls, abort, repetition
	// Stop is what ended the choice: a stop string, a token id (int32), or nil for the
	// tokenizer's EOS and for length.
	Stop any
}

// Usage counts the tokens of all prompts and choices so far.
type Usage struct {
	Prompt, Completion int
	Cached             int  // prompt tokens from the prefix cache
	Reasoning          int  // generated reasoning tokens, if the request asked for Segments
	ReportCached       bool // replies include Cached
}

// batch is the result of one read of a stream.
type batch struct {
	choice int
	events []engine.Event
	err    error
}

// open starts reading the streams. Next itself reads a single choice; of several, each has a
// goroutine, which blocks while the reader is slow.
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

// pump sends the batches of a stream.
func (c *choice) pump(ctx context.Context, i int, to chan<- batch) {
	for {
		evs, err := c.stream.Next(ctx)
		if len(evs) == 0 && err == nil {
			return
		}
		select {
		case to <- batch{i, slices.Clone(evs), err}: // the stream reuses evs before the reader gets them
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Next waits for and returns the deltas since the last call. After the end of all choices
// it returns nil, nil. Its errors are *Error and end the run.
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

// advance returns the deltas that are ready; it waits for the first batch, and the result
// may be empty.
func (r *Run) advance(ctx context.Context) ([]Delta, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	var out []Delta
	for _, i := range r.idle {
		out = r.add(out, i, r.choices[i].echoOnly())
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

// takeAll also takes the batches that are ready, so that one write sends them.
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

// take decodes a batch and appends the delta.
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
	return r.add(out, b.choice, d), nil
}

// add appends a delta unless it is empty, and counts finished choices.
func (r *Run) add(out []Delta, i int, d Delta) []Delta {
	d.Choice = i
	if r.choices[i].done {
		r.left--
	}
	if d.Text == "" && d.Reasoning == "" && len(d.Calls) == 0 && len(d.Tokens) == 0 && len(d.Logprobs) == 0 && d.Finish == "" {
		return out
	}
	return append(out, d)
}

// cancel aborts every choice in the engine. It may be called from any goroutine and more
// than once.
func (r *Run) cancel() {
	for _, c := range r.choices {
		if c.stream != nil {
			c.stream.Cancel()
		}
	}
}

// Close aborts the unfinished choices. A caller that does not read the run to its end must
// call it; otherwise it has no effect.
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

// Usage returns the counts so far.
func (r *Run) Usage() Usage {
	u := Usage{ReportCached: r.reportCached}
	for _, p := range r.Prompts {
		u.Prompt += len(p.Tokens)
	}
	cached := make([]int, len(r.Prompts))
	for _, c := range r.choices {
		u.Completion += c.tokens
		if c.segments != nil {
			u.Reasoning += c.segments.reasoning
		}
		cached[c.prompt] = max(cached[c.prompt], c.cached)
	}
	for _, n := range cached {
		u.Cached += n
	}
	return u
}

// Reply is a complete choice.
type Reply struct {
	Prompt int // index into Run.Prompts
	Delta
}

// Wait reads the run to its end and returns all choices in order. With an error they hold
// the parts before it.
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

// PromptOf returns the index into Prompts of a choice.
func (r *Run) PromptOf(choice int) int { return r.choices[choice].prompt }

// Choices returns the number of choices.
func (r *Run) Choices() int { return len(r.choices) }
