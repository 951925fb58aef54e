// Package chattest is a model for tests that says what it is told: an engine, a
// tokenizer of bytes and a template, all of them deterministic. Nothing of it
// ships in the binary.
package chattest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// Script is what one choice says.
type Script struct {
	Text   string
	Tokens []int32       // in place of Text
	Finish engine.Finish // after the text; zero: stop, by EOS
	// StopToken, when not 0, is the stop token that ends it in place of EOS.
	StopToken int32
	Err       error // with FinishError
	Endless   bool  // repeats Text until max_tokens or a cancel
}

// Model is an engine whose tokens are bytes. It gives a choice its next token
// when the one before has been decoded, so that a reader of one choice sees one
// token at a time whatever the timing.
type Model struct {
	Say    func(r engine.Request, choice int) Script // nil: "Hello!"
	Refuse error                                     // what Submit answers, when not nil
	Cached int                                       // prompt tokens of every request
	// Pooling makes it a model that pools; nil: it generates.
	Pooling *chat.PoolingConfig

	mu        sync.Mutex
	requests  []engine.Request
	cancelled int
	waiting   []*speaker // have no decoder yet: choices of one request
	bound     sync.Cond  // waiting has become shorter
}

// Submit starts the choices of a request, once those of the one before have their
// decoders: a decoder drives the choice it was made for, however many ask at once.
func (m *Model) Submit(_ context.Context, r engine.Request) ([]*engine.Stream, error) {
	if m.Refuse != nil {
		return nil, m.Refuse
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Pool != engine.NoPool {
		m.requests = append(m.requests, r)
		return []*engine.Stream{m.pool(r)}, nil
	}
	m.bound.L = &m.mu
	for len(m.waiting) > 0 {
		m.bound.Wait()
	}
	m.requests = append(m.requests, r)
	var out []*engine.Stream
	for i := range max(1, r.N) {
		sp := m.speaker(r, i)
		out = append(out, sp.stream)
		if !strings.HasSuffix(r.ID, "-beam") { // a step of a beam search: nobody decodes it
			m.waiting = append(m.waiting, sp)
		}
	}
	return out, nil
}

// Requests are those submitted so far.
func (m *Model) Requests() []engine.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]engine.Request(nil), m.requests...)
}

// Cancelled counts choices that were cancelled before their end.
func (m *Model) Cancelled() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cancelled
}

// speaker speaks the tokens of one choice.
type speaker struct {
	m      *Model
	r      engine.Request
	script Script
	stream *engine.Stream
	push   func(engine.Event)

	mu    sync.Mutex
	said  int
	ended bool
}

func (m *Model) speaker(r engine.Request, choice int) *speaker {
	sp := &speaker{m: m, r: r, script: Script{Text: "Hello!"}}
	if m.Say != nil {
		sp.script = m.Say(r, choice)
	}
	sp.stream, sp.push = engine.NewStream(r.ID, sp.cancel)
	sp.next()
	return sp
}

func (sp *speaker) cancel() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.ended {
		return
	}
	sp.ended = true
	sp.m.mu.Lock()
	sp.m.cancelled++
	sp.m.waiting = slices.DeleteFunc(sp.m.waiting, func(w *speaker) bool { return w == sp })
	sp.m.bound.Broadcast()
	sp.m.mu.Unlock()
	sp.push(engine.Event{Token: -1, Finish: engine.FinishAbort, StopToken: -1})
}

// next speaks one token.
func (sp *speaker) next() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.ended {
		return
	}
	ev := sp.event()
	sp.ended = ev.Finish != engine.NotFinished
	sp.said++
	sp.push(ev)
}

func (sp *speaker) event() engine.Event {
	s, ev := sp.script, engine.Event{Token: -1, StopToken: -1}
	if sp.said == 0 {
		ev.Cached, ev.Prompt = sp.m.Cached, sp.promptLogprobs()
	}
	tokens := s.Tokens
	if tokens == nil {
		for _, b := range []byte(s.Text) {
			tokens = append(tokens, int32(b))
		}
	}
	switch n := len(tokens); {
	case n > 0 && (s.Endless || sp.said < n):
		ev.Token = tokens[sp.said%n]
	case s.Finish == engine.FinishError:
		ev.Finish, ev.Err = s.Finish, s.Err
		return ev
	case s.Finish != engine.NotFinished:
		ev.Finish = s.Finish
		return ev
	case s.StopToken != 0:
		ev.Token, ev.Finish, ev.StopToken = s.StopToken, engine.FinishStop, s.StopToken
	default:
		ev.Token, ev.Finish = EOS, engine.FinishStop
	}
	if k := sp.r.Params.Logprobs; k >= 0 {
		l := Logprob(ev.Token, k)
		ev.Logprob = &l
	}
	if ev.Finish == engine.NotFinished && sp.said+1 >= sp.r.Params.MaxTokens {
		ev.Finish = engine.FinishLength
	}
	return ev
}

func (sp *speaker) promptLogprobs() []engine.Logprob {
	k := sp.r.Params.PromptLogprobs
	if k < 0 {
		return nil
	}
	out := []engine.Logprob{}
	for _, id := range sp.r.Prompt[1:] {
		out = append(out, Logprob(id, k))
	}
	return out
}

// Logprob is what the model thinks of every token: it is the second best, after
// the next id, with k alternatives.
func Logprob(id int32, k int) engine.Logprob {
	l := engine.Logprob{Token: id, Logprob: -1, Rank: 2}
	for i := range int32(k) {
		alt := []int32{id + 1, id, id + 2, id + 3}[min(i, 3)]
		if i > 3 {
			alt = id + i
		}
		l.Top = append(l.Top, engine.TopLogprob{Token: alt % Vocab, Logprob: -0.5 * float32(i+1)})
	}
	return l
}
