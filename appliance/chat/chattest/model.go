// Package chattest has a model for tests that generates scripted replies: an engine, a
// tokenizer of bytes and a template, all deterministic. It must not ship in the binary.
// Start reading at Model in model.go; Service in service.go builds a service on it.
package chattest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"vapp.dev/appliance/chat"
	"vapp.dev/engine"
)

// Script is the reply of one choice.
type Script struct {
	Text   string
	Tokens []int32       // in place of Text
	Finish engine.Finish // after the text; zero: stop with EOS
	// StopToken, if not 0, ends the reply in place of EOS.
	StopToken int32
	Err       error // with FinishError
	Endless   bool  // repeat Text until max_tokens or a cancel
}

// Model is an engine whose tokens are bytes. A choice gets its next token only when the
// previous one was decoded, so that a reader of one choice always sees one token at a time.
type Model struct {
	Say    func(r engine.Request, choice int) Script // nil: "Hello!"
	Refuse error                                     // the error of Submit, if not nil
	Cached int                                       // cached prompt tokens of every request
	// Pooling makes it a pooling model; nil: it generates text.
	Pooling *chat.PoolingConfig
	// Adapters are the model's LoRA adapters; nil: it has no slots for them.
	Adapters *Adapters

	mu        sync.Mutex
	requests  []engine.Request
	cancelled int
	waiting   []*speaker // choices of one request that have no decoder yet
	bound     sync.Cond  // signals that waiting became shorter
}

// Submit starts the choices of a request, after those of the previous request have their
// decoders. So each decoder belongs to the right choice, even with concurrent requests.
func (m *Model) Submit(_ context.Context, r engine.Request) ([]*engine.Stream, error) {
	if m.Refuse != nil {
		return nil, m.Refuse
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Pooling != engine.NoPooling {
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
		if !strings.HasSuffix(r.ID, "-beam") { // a step of a beam search has no decoder
			m.waiting = append(m.waiting, sp)
		}
	}
	return out, nil
}

// Requests returns the requests submitted so far.
func (m *Model) Requests() []engine.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]engine.Request(nil), m.requests...)
}

// Cancelled returns the number of choices that were cancelled before their end.
func (m *Model) Cancelled() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cancelled
}

// speaker generates the tokens of one choice.
type speaker struct {
	m      *Model
	r      engine.Request
	script Script
	stream *engine.Stream
	push   func(engine.Event)

	mu    sync.Mutex
	sent  int
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

// next generates one token.
func (sp *speaker) next() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.ended {
		return
	}
	ev := sp.event()
	sp.ended = ev.Finish != engine.NotFinished
	sp.sent++
	sp.push(ev)
}

func (sp *speaker) event() engine.Event {
	s, ev := sp.script, engine.Event{Token: -1, StopToken: -1}
	if sp.sent == 0 {
		ev.Cached, ev.Prompt = sp.m.Cached, sp.promptLogprobs()
	}
	tokens := s.Tokens
	if tokens == nil {
		for _, b := range []byte(s.Text) {
			tokens = append(tokens, int32(b))
		}
	}
	switch n := len(tokens); {
	case n > 0 && (s.Endless || sp.sent < n):
		ev.Token = tokens[sp.sent%n]
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
	if ev.Finish == engine.NotFinished && sp.sent+1 >= sp.r.Params.MaxTokens {
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

// Logprob returns the logprob of any token, with k alternatives: the token has rank 2, after
// the next id.
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
