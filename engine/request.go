package engine

import (
	"context"
	"sync"
	"time"

	"vapp.dev/engine/grammar"
	"vapp.dev/engine/sample"
)

// Request is one prompt and the choices to generate for it, in tokens.
type Request struct {
	ID       string
	Prompt   []int32          // at least one token
	Params   sample.Params    // validated; MaxTokens ≥ 1 and within the model length
	N        int              // choices; each has its own Stream
	Priority int              // lower runs first, under the priority policy
	Deadline time.Time        // zero: none; past it the request is aborted
	Salt     string           // separates prefix-cache contents
	Grammar  *grammar.Grammar // what the reply may say; nil: anything
	Preamble grammar.Preamble // part of the reply before Grammar applies
	Thinking *Thinking        // bounds the thought before; nil: nothing does
	// Pool asks for what the model's last hidden states become, in place of tokens: then
	// Params and N are not read. NoPool: tokens.
	Pool Pool
}

// Finish says why a stream ended; NotFinished while it has not.
type Finish uint8

// The reasons, named as clients see them.
const (
	NotFinished  Finish = iota
	FinishStop          // EOS or a stop token
	FinishLength        // max_tokens or the model length
	FinishAbort         // cancelled, client gone, deadline, shutdown
	FinishError         // no token could be drawn, or the engine failed
)

// String is the finish_reason of the API.
func (f Finish) String() string {
	return [...]string{"", "stop", "length", "abort", "error"}[f]
}

// Logprob is one token's raw log probability, as before any edit.
type Logprob struct {
	Token   int32
	Logprob float32
	Rank    int32 // tokens at least as likely; 1 is the best
	Top     []TopLogprob
}

// TopLogprob is one entry of a row's best tokens, best first.
type TopLogprob struct {
	Token   int32
	Logprob float32
}

// Event is what a step gave a stream.
type Event struct {
	// Token is the generated token, −1 in an event that only finishes.
	Token   int32
	Logprob *Logprob // when asked for
	// Prompt holds the prompt logprobs of positions 1.. when asked for; it comes
	// once, with or before the first token.
	Prompt []Logprob
	Cached int // prompt tokens taken from the prefix cache; in the first event
	Finish Finish
	// StopToken is the stop token id that ended the stream (stop_token_ids or
	// an additional EOS of the generation config), −1 for the tokenizer's EOS.
	StopToken int32
	Err       error // with FinishError
	// Pooled is what Request.Pool asked for, with FinishStop: rows of Engine.Width numbers,
	// one, or with PoolAll one for each token of the prompt.
	Pooled []float32
	At     time.Time
}

// Stream delivers the events of one choice. The loop never waits for it: what nobody
// has taken yet is kept, as many as the request may generate. Two lists take turns, one
// being filled while the other is read, so that a stream that is read allocates nothing.
type Stream struct {
	ID     string
	cancel func(Finish)

	mu     sync.Mutex
	fresh  []Event // not taken yet
	taken  []Event // what the last Next returned
	done   bool
	signal chan struct{} // capacity 1
}

// A list has room for some events before it grows; one that grew beyond keptEvents
// while nobody read is let go when it was read.
const firstEvents, keptEvents = 8, 256

// NewStream makes a stream and the function that feeds it; an engine that is
// not this package (a fake in a test) uses it too. cancel is called by Cancel.
func NewStream(id string, cancel func()) (*Stream, func(Event)) {
	s := newStream(id, func(Finish) { cancel() })
	return s, s.push
}

func newStream(id string, cancel func(Finish)) *Stream {
	return &Stream{ID: id, cancel: cancel, signal: make(chan struct{}, 1)}
}

// Next returns all events that have come since the last call, waiting for
// at least one; they are the caller's until the next call. After the event with a
// Finish it returns nil, nil. When ctx ends first it returns its error; the request goes
// on until Cancel.
func (s *Stream) Next(ctx context.Context) ([]Event, error) {
	for {
		s.mu.Lock()
		evs, done := s.fresh, s.done
		if len(evs) > 0 {
			clear(s.taken) // what its events refer to is free
			if s.fresh = s.taken[:0]; cap(s.fresh) > keptEvents {
				s.fresh = nil
			}
			s.taken = evs
		} else {
			evs = nil
		}
		s.mu.Unlock()
		if len(evs) > 0 || done {
			return evs, nil
		}
		select {
		case <-s.signal:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Cancel aborts the choice; its pages are free within one step. Calling it
// after the end, or twice, does nothing.
func (s *Stream) Cancel() { s.cancel(FinishAbort) }

// Stop is Cancel for a choice whose reader has found its end in the text: it
// counts as stopped, not as aborted.
func (s *Stream) Stop() { s.cancel(FinishStop) }

// push is called by the loop only.
func (s *Stream) push(e Event) {
	s.mu.Lock()
	if !s.done {
		if s.fresh == nil {
			s.fresh = make([]Event, 0, firstEvents)
		}
		s.fresh = append(s.fresh, e)
		s.done = e.Finish != NotFinished
	}
	s.mu.Unlock()
	select {
	case s.signal <- struct{}{}:
	default:
	}
}
