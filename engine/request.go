package engine

import (
	"context"
	"sync"
	"time"

	"vapp.dev/engine/grammar"
	"vapp.dev/engine/sample"
)

// Request asks for one or more choices generated from one prompt.
type Request struct {
	ID       string
	ReplyID  string           // id of the reply to the client, for its Observer; the engine does not use it
	Prompt   []int32          // at least one token
	Items    []Item           // images of the prompt, in order of their positions
	Params   sample.Params    // validated; MaxTokens ≥ 1 and within the model length
	N        int              // number of choices; each has its own Stream
	Priority int              // lower runs first, under the priority policy
	Deadline time.Time        // the request is aborted then; zero: none
	Salt     string           // requests of different salts share no cached prefixes
	Adapter  string           // name of a loaded LoRA adapter; "": the model alone
	Grammar  *grammar.Grammar // constrains the reply; nil: unconstrained
	Preamble grammar.Preamble // text of the reply before Grammar applies
	Thinking *Thinking        // limits the reasoning before the reply; nil: unlimited
	// Pooling asks for pooled hidden states in place of tokens; Params and N are then not
	// used. NoPooling asks for tokens.
	Pooling PoolingMode
}

// Finish is the reason why a stream ended, or NotFinished.
type Finish uint8

// The reasons, named as clients see them.
const (
	NotFinished  Finish = iota
	FinishStop          // EOS or a stop token
	FinishLength        // max_tokens or the model length
	FinishAbort         // cancelled, client gone, deadline, shutdown
	FinishError         // no token could be sampled, or the engine failed
)

// String returns the finish_reason of the API.
func (f Finish) String() string {
	return [...]string{"", "stop", "length", "abort", "error"}[f]
}

// Logprob is a token's log probability before any logit edit.
type Logprob struct {
	Token   int32
	Logprob float32
	Rank    int32 // number of tokens at least as likely; 1 is the best
	Top     []TopLogprob
}

// TopLogprob is one entry of a row's best tokens, best first.
type TopLogprob struct {
	Token   int32
	Logprob float32
}

// Event is the output of one step for a stream.
type Event struct {
	// Token is the generated token, −1 in an event that only ends the stream.
	Token   int32
	Logprob *Logprob // if requested
	// Prompt holds the prompt logprobs of positions 1 and following, if requested. It comes
	// once, in the first event.
	Prompt []Logprob
	Cached int // prompt tokens taken from the prefix cache; set in the first event
	Finish Finish
	// StopToken is the stop token id that ended the stream (stop_token_ids or
	// an additional EOS of the generation config), −1 for the tokenizer's EOS.
	StopToken int32
	Err       error // with FinishError
	// Pooled is the result of a pooling request, in its last event: one row of Engine.Width
	// numbers, or with PoolingAll one for each token of the prompt.
	Pooled []float32
	At     time.Time
}

// Stream delivers the events of one choice. The loop never waits for its reader: events are
// buffered without a limit until they are read. Two buffers alternate, one is filled while the
// other is read, so that a stream with a prompt reader allocates nothing.
type Stream struct {
	ID     string
	cancel func(Finish)

	mu     sync.Mutex
	fresh  []Event // not read yet
	taken  []Event // returned by the last Next
	done   bool
	signal chan struct{} // capacity 1
}

// A buffer starts with a capacity of firstEvents. One that has grown beyond keptEvents is not
// reused.
const firstEvents, keptEvents = 8, 256

// NewStream returns a stream and the function that pushes its events, for a fake engine in a
// test. Stream.Cancel calls cancel.
func NewStream(id string, cancel func()) (*Stream, func(Event)) {
	s := newStream(id, func(Finish) { cancel() })
	return s, s.push
}

func newStream(id string, cancel func(Finish)) *Stream {
	return &Stream{ID: id, cancel: cancel, signal: make(chan struct{}, 1)}
}

// Next waits for at least one event and returns all events since the last call. They are valid
// until the next call. After the event with a Finish it returns nil, nil. If ctx is done first
// it returns ctx.Err(); the request continues until Cancel.
func (s *Stream) Next(ctx context.Context) ([]Event, error) {
	for {
		s.mu.Lock()
		evs, done := s.fresh, s.done
		if len(evs) > 0 {
			clear(s.taken) // so that the garbage collector can free what they refer to
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

// Cancel aborts the choice; its pages are freed within one step. It does nothing after the
// choice has ended.
func (s *Stream) Cancel() { s.cancel(FinishAbort) }

// Stop ends a choice whose reader found a stop string in its text. The choice counts as
// stopped, not as aborted.
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
