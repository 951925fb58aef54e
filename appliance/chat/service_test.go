package chat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
	"vapp.dev/engine/checkpoint"
)

// start starts a request with usual settings.
func start(t *testing.T, s *chat.Service, a chat.RequestParams, set chat.Settings) (*chat.Run, error) {
	t.Helper()
	if a.N == 0 {
		a.N = 1
	}
	r, err := chat.NewRequest(a, &set)
	if err != nil {
		return nil, err
	}
	return s.Start(t.Context(), r)
}

func text(s string) []chat.Prompt { return []chat.Prompt{{Text: s}} }

func ptr[T any](v T) *T { return &v }

// collect reads a run delta by delta.
func collect(t *testing.T, run *chat.Run) map[int]*chat.Delta {
	t.Helper()
	out := map[int]*chat.Delta{}
	for {
		ds, err := run.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ds == nil {
			return out
		}
		for _, d := range ds {
			o := out[d.Choice]
			if o == nil {
				o = &chat.Delta{Choice: d.Choice}
				out[d.Choice] = o
			}
			if o.Finish != "" {
				t.Fatalf("choice %d: a delta after its end: %+v", d.Choice, d)
			}
			o.Text += d.Text
			o.Tokens = append(o.Tokens, d.Tokens...)
			o.Finish, o.Stop = d.Finish, d.Stop
		}
	}
}

// TestStreamIsReply checks with random texts and stop strings that the deltas of a stream add
// up to the whole reply, and that both are what the stop strings define.
func TestStreamIsReply(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 150 {
		texts := make([]string, 4)
		for i := range texts {
			for range r.IntN(12) {
				texts[i] += []string{"a", "b", "é", "日", "ab"}[r.IntN(5)]
			}
		}
		m := &chattest.Model{Say: func(_ engine.Request, i int) chattest.Script { return chattest.Script{Text: texts[i]} }}
		a := chat.RequestParams{
			ID: "x", Prompts: text("p"), N: 1 + r.IntN(4), SkipSpecialTokens: true, IncludeStop: r.IntN(2) == 0,
			Stop: [][]string{nil, {"b"}, {"éa", "日"}, {"bab"}}[r.IntN(4)],
		}
		s := chattest.Service(m)
		run, err := start(t, s, a, chattest.Settings())
		if err != nil {
			t.Fatal(err)
		}
		deltas := collect(t, run)
		if run, err = start(t, s, a, chattest.Settings()); err != nil {
			t.Fatal(err)
		}
		replies, err := run.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, reply := range replies {
			want, stop := cut(texts[i], a.Stop, a.IncludeStop)
			d := deltas[i]
			if reply.Text != want || d.Text != want || d.Stop != stop || reply.Stop != stop || !slices.Equal(d.Tokens, reply.Tokens) {
				t.Fatalf("round %d, choice %d of %q, stop %q: stream %q (%v), reply %q (%v), want %q (%v)",
					round, i, texts[i], a.Stop, d.Text, d.Stop, reply.Text, reply.Stop, want, stop)
			}
		}
	}
}

// cut returns the text up to its first stop string.
func cut(text string, stops []string, include bool) (string, any) {
	for end := 1; end <= len(text); end++ {
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				if include {
					return text[:end], s
				}
				return text[:end-len(s)], s
			}
		}
	}
	return text, nil
}

// TestLayers checks the precedence of each sampling parameter: request, profile, generation
// config, API defaults.
func TestLayers(t *testing.T) {
	m := &chattest.Model{}
	cfg := chattest.Config(m)
	cfg.Generation = checkpoint.GenerationConfig{Temperature: ptr(0.25), TopP: ptr(0.5), TopK: ptr(7), MaxNewTokens: ptr(9)}
	s := chat.New(cfg)
	set := chattest.Settings()
	set.Sampling = chat.Sampling{Temperature: ptr(0.75), MinP: ptr(0.125), MaxTokens: ptr(50)}
	a := chat.RequestParams{Prompts: text("p"), AddSpecialTokens: true, Sampling: chat.Sampling{TopP: ptr(0.875)}}
	if _, err := start(t, s, a, set); err != nil {
		t.Fatal(err)
	}
	p := m.Requests()[0].Params
	if p.Temperature != 0.75 || p.TopP != 0.875 || p.TopK != 7 || p.MinP != 0.125 || p.Repetition != 1 || p.MaxTokens != 9 {
		t.Errorf("layered: %+v", p)
	}
	if !slices.Equal(p.EOS, []int32{chattest.EOS, chattest.Turn}) {
		t.Errorf("EOS: %v, the tokenizer's own must be first", p.EOS)
	}
	if d, want := s.Defaults(&set), (chat.Defaults{Temperature: 0.75, TopP: 0.5, TopK: 7, MinP: 0.125, RepetitionPenalty: 1, MaxTokens: 9, ModelLen: cfg.ModelLen}); d != want {
		t.Errorf("defaults %+v, want %+v", d, want)
	}
	set.GenerationConfig = false
	set.Sampling = chat.Sampling{MaxTokens: ptr(50)}
	if d, want := s.Defaults(&set), (chat.Defaults{Temperature: 1, TopP: 1, RepetitionPenalty: 1, MaxTokens: 50, ModelLen: cfg.ModelLen}); d != want {
		t.Errorf("defaults without the model's %+v, want %+v", d, want)
	}
	a.Seed, a.Priority, a.CacheSalt = ptr(int64(-1)), 0, ptr("salt")
	for i, want := range []struct {
		max    *int
		tokens int
	}{{nil, 50}, {ptr(60), 50}, {ptr(20), 20}} {
		a.MaxTokens = want.max
		if _, err := start(t, s, a, set); err != nil {
			t.Fatal(err)
		}
		q := m.Requests()[i+1]
		if q.Params.MaxTokens != want.tokens || q.Params.Temperature != 1 || q.Params.TopK != 0 || q.Params.HasSeed || q.Salt != "salt" {
			t.Errorf("neutral: %+v", q.Params)
		}
	}
	set.Sampling.MaxTokens, a.MaxTokens = nil, nil
	a.Seed = ptr(int64(-7))
	if _, err := start(t, s, a, set); err != nil {
		t.Fatal(err)
	}
	if q := m.Requests()[4]; q.Params.MaxTokens != chattest.ModelLen-2 || !q.Params.HasSeed || int64(q.Params.Seed) != -7 {
		t.Errorf("room: %+v", q.Params)
	}
}

func TestSamplerSeesTheRequest(t *testing.T) {
	m := &chattest.Model{}
	set := chattest.Settings()
	set.RequestTimeout, set.PriorityScheduling = time.Minute, true
	a := chat.RequestParams{
		ID: "id", Prompts: text("p"), N: 3, Priority: -2, BadWords: []string{"b"}, LogitBias: map[int32]float64{5: -1, 3: 2},
		AllowedTokenIDs: []int32{1, 2}, StopTokenIDs: []int32{9}, MinTokens: 1, IgnoreEOS: true,
		Logprobs: ptr(2), PromptLogprobs: ptr(0), FrequencyPenalty: 0.5, PresencePenalty: -0.5,
	}
	if _, err := start(t, chattest.Service(m), a, set); err != nil {
		t.Fatal(err)
	}
	r := m.Requests()[0]
	p := r.Params
	if r.N != 3 || r.Priority != -2 || !r.Deadline.Equal(chattest.Now.Add(time.Minute)) || !strings.HasPrefix(r.ID, "id-") {
		t.Errorf("request: %+v", r)
	}
	if fmt.Sprint(p.LogitBias) != "[{3 2} {5 -1}]" || fmt.Sprint(p.BadWords) != "[[98] [32 98]]" || p.MinTokens != 1 || !p.IgnoreEOS ||
		p.Logprobs != 2 || p.PromptLogprobs != 0 || p.Frequency != 0.5 || p.Presence != -0.5 || p.StopTokenIDs[0] != 9 || len(p.AllowedTokenIDs) != 2 {
		t.Errorf("params: %+v", p)
	}
}

func TestEngineErrors(t *testing.T) {
	long := &engine.TooLongError{Prompt: 3, Output: 4, Limit: 5, What: "what the KV cache holds"}
	for _, c := range []struct {
		err  error
		kind chat.Kind
	}{
		{engine.ErrOverloaded, chat.Overloaded}, {engine.ErrClosed, chat.Unavailable}, {engine.ErrDead, chat.Internal},
		{long, chat.TooLong}, {errors.New("disk on fire"), chat.Internal}, {context.Canceled, chat.Gone},
	} {
		m := &chattest.Model{Refuse: fmt.Errorf("submit: %w", c.err)}
		_, err := start(t, chattest.Service(m), chat.RequestParams{Prompts: text("p")}, chattest.Settings())
		var e *chat.Error
		if !errors.As(err, &e) || e.Kind != c.kind {
			t.Errorf("%v: got %v, want kind %v", c.err, err, c.kind)
		} else if strings.Contains(e.Message, "fire") {
			t.Errorf("the client is told what it must not know: %s", e.Message)
		}
		m = &chattest.Model{Say: func(engine.Request, int) chattest.Script {
			return chattest.Script{Finish: engine.FinishError, Err: c.err}
		}}
		run, err := start(t, chattest.Service(m), chat.RequestParams{Prompts: text("p"), N: 2}, chattest.Settings())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(t.Context()); chat.AsError(err).Kind != c.kind {
			t.Errorf("in a stream, %v: got %v, want kind %v", c.err, err, c.kind)
		}
	}
}

// atOnce is an engine that generates two tokens and fails before the first read.
type atOnce struct{}

func (atOnce) Submit(_ context.Context, r engine.Request) ([]*engine.Stream, error) {
	var out []*engine.Stream
	for range r.N {
		s, push := engine.NewStream(r.ID, func() {})
		push(engine.Event{Token: 'a', StopToken: -1})
		push(engine.Event{Token: 'b', StopToken: -1})
		push(engine.Event{Token: -1, StopToken: -1, Finish: engine.FinishError, Err: engine.ErrNoToken})
		out = append(out, s)
	}
	return out, nil
}

// TestErrorBehindTokens checks that tokens before an error are returned before it, even to a
// late reader.
func TestErrorBehindTokens(t *testing.T) {
	c := chattest.Config(&chattest.Model{})
	c.Engine = atOnce{}
	for n := 1; n <= 2; n++ {
		run, err := start(t, chat.New(c), chat.RequestParams{Prompts: text("p"), N: n}, chattest.Settings())
		if err != nil {
			t.Fatal(err)
		}
		deltas, err := run.Next(t.Context())
		if err != nil || len(deltas) == 0 || deltas[0].Text != "ab" || deltas[0].Finish != "" {
			t.Errorf("%d choices: %+v, %v", n, deltas, err)
		}
		if deltas, err = run.Next(t.Context()); chat.AsError(err).Kind != chat.Internal {
			t.Errorf("%d choices: then %+v, %v", n, deltas, err)
		}
	}
}

// TestCancel checks that closing a run or ending its context cancels all its choices, and that
// a run that is read to its end cancels nothing.
func TestCancel(t *testing.T) {
	endless := func(engine.Request, int) chattest.Script { return chattest.Script{Text: "a", Endless: true} }
	a := chat.RequestParams{Prompts: []chat.Prompt{{Text: "p"}, {Text: "q"}}, N: 2}
	m := &chattest.Model{Say: endless}
	run, err := start(t, chattest.Service(m), a, chattest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	run.Close()
	run.Close()
	if m.Cancelled() != 4 {
		t.Errorf("Close cancelled %d of 4", m.Cancelled())
	}
	m = &chattest.Model{Say: endless}
	set := chattest.Settings()
	r, err := chat.NewRequest(chat.RequestParams{Prompts: text("p"), N: 2}, &set)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	if run, err = chattest.Service(m).Start(ctx, r); err != nil {
		t.Fatal(err)
	}
	leave()
	if _, err := run.Wait(ctx); chat.AsError(err).Kind != chat.Gone {
		t.Errorf("got %v", err)
	}
	if m.Cancelled() != 2 {
		t.Errorf("the context cancelled %d of 2", m.Cancelled())
	}
	m = &chattest.Model{}
	if run, err = start(t, chattest.Service(m), a, chattest.Settings()); err != nil {
		t.Fatal(err)
	}
	if _, err = run.Wait(t.Context()); err != nil || m.Cancelled() != 0 {
		t.Errorf("read to the end: %v, %d cancelled", err, m.Cancelled())
	}
}

// TestStopCancels checks that a stop string cancels its own choice in the engine and no other.
func TestStopCancels(t *testing.T) {
	m := &chattest.Model{Say: func(_ engine.Request, i int) chattest.Script {
		return chattest.Script{Text: "ab", Endless: i == 0}
	}}
	run, err := start(t, chattest.Service(m), chat.RequestParams{Prompts: text("p"), N: 2, Stop: []string{"aba"}}, chattest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	out, err := run.Wait(t.Context())
	if err != nil || out[0].Text != "" || out[0].Stop != "aba" || len(out[0].Tokens) != 3 || out[1].Text != "ab" || m.Cancelled() != 1 {
		t.Errorf("%v: %+v, %d cancelled", err, out, m.Cancelled())
	}
	if u := run.Usage(); u.Completion != 6 || u.Prompt != 1 {
		t.Errorf("usage: %+v", u)
	}
}

// TestOnlyPartOfABatchIsAdmitted checks that prompts submitted before a refused one are
// cancelled.
func TestOnlyPartOfABatchIsAdmitted(t *testing.T) {
	m := &chattest.Model{Say: func(engine.Request, int) chattest.Script { return chattest.Script{Text: "a", Endless: true} }}
	cfg := chattest.Config(m)
	cfg.Engine = &full{m, 2}
	a := chat.RequestParams{Prompts: []chat.Prompt{{Text: "p"}, {Text: "q"}, {Text: "r"}}}
	_, err := start(t, chat.New(cfg), a, chattest.Settings())
	if chat.AsError(err).Kind != chat.Overloaded || m.Cancelled() != 2 {
		t.Errorf("got %v, %d cancelled", err, m.Cancelled())
	}
}

// full is an engine that accepts only a few requests.
type full struct {
	*chattest.Model
	left int
}

func (f *full) Submit(ctx context.Context, r engine.Request) ([]*engine.Stream, error) {
	if f.left--; f.left < 0 {
		return nil, engine.ErrOverloaded
	}
	return f.Model.Submit(ctx, r)
}
