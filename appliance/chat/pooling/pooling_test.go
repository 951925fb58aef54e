package pooling_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/appliance/chat/pooling"
	"vapp.dev/engine"
)

// around is a tokenizer with special tokens before and after a text.
type around struct{ *chattest.Model }

func (a around) Encode(text string, addSpecial bool) ([]int32, error) {
	ids, err := a.Model.Encode(text, false)
	if addSpecial && err == nil {
		ids = slices.Concat([]int32{chattest.BOS}, ids, []int32{chattest.EOS})
	}
	return ids, err
}

func (a around) Encoding(text string, addSpecial bool) chat.Encoding {
	return chattest.Whole(a.Encode, text, addSpecial)
}

// TestPoolTruncates checks that truncation removes the end or the beginning of a text and
// keeps the special tokens around it.
func TestPoolTruncates(t *testing.T) {
	for name, c := range map[string]struct {
		params pooling.Params
		keep   int
		want   []int32
	}{
		"the end":         {pooling.Params{AddSpecialTokens: true}, 4, []int32{chattest.BOS, 'a', 'b', chattest.EOS}},
		"the beginning":   {pooling.Params{AddSpecialTokens: true, TruncationSide: "left"}, 4, []int32{chattest.BOS, 'd', 'e', chattest.EOS}},
		"nothing":         {pooling.Params{AddSpecialTokens: true}, 7, []int32{chattest.BOS, 'a', 'b', 'c', 'd', 'e', chattest.EOS}},
		"as many as fit":  {pooling.Params{AddSpecialTokens: true}, -1, []int32{chattest.BOS, 'a', 'b', 'c', 'd', 'e', chattest.EOS}},
		"plain text":      {pooling.Params{TruncationSide: "left"}, 2, []int32{'d', 'e'}},
		"less than those": {pooling.Params{AddSpecialTokens: true}, 1, []int32{chattest.BOS}},
		"the ids":         {pooling.Params{AddSpecialTokens: true, Inputs: []chat.Prompt{{Tokens: []int32{1, 2, 3}}}, TruncationSide: "left"}, 2, []int32{2, 3}},
	} {
		m := &chattest.Model{Pooling: chattest.Embeds()}
		cfg := chattest.Config(m)
		cfg.Text = around{m}
		if c.params.Truncate = &c.keep; c.params.Inputs == nil {
			c.params.Inputs = []chat.Prompt{{Text: "abcde"}}
		}
		c.params.Task = chat.TaskEmbed
		set := chattest.Settings()
		got, err := pooling.New(chat.New(cfg)).Pool(context.Background(), c.params, &set)
		if err != nil {
			t.Fatal(name, err)
		}
		if ids := m.Requests()[0].Prompt; !slices.Equal(ids, c.want) || got.Usage.Prompt != len(c.want) {
			t.Errorf("%s: %v, want %v, usage %+v", name, ids, c.want, got.Usage)
		}
	}
}

// slow is an engine whose pooling requests end when the test allows it.
type slow struct {
	open, most atomic.Int64
	push       chan func(engine.Event)
	cancelled  atomic.Int64
}

func (s *slow) Submit(_ context.Context, r engine.Request) ([]*engine.Stream, error) {
	if n := s.open.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	st, push := engine.NewStream(r.ID, func() { s.cancelled.Add(1) })
	s.push <- func(ev engine.Event) {
		s.open.Add(-1)
		push(ev)
	}
	return []*engine.Stream{st}, nil
}

// TestPoolAtOnce checks that the engine has at most AtOnce inputs of a request at a time, that
// the vectors are in the order of the inputs, and that the first failure cancels the rest.
func TestPoolAtOnce(t *testing.T) {
	s := &slow{push: make(chan func(engine.Event), 64)}
	m := &chattest.Model{Pooling: chattest.Embeds()}
	m.Pooling.AtOnce = 3
	cfg := chattest.Config(m)
	cfg.Engine = s
	svc, set, off := pooling.New(chat.New(cfg)), chattest.Settings(), false
	params := pooling.Params{Task: chat.TaskEmbed, Activate: &off}
	for range 20 {
		params.Inputs = append(params.Inputs, chat.Prompt{Text: "x"})
	}
	go func() {
		for i := range 20 {
			(<-s.push)(engine.Event{Finish: engine.FinishStop, Pooled: []float32{float32(i), 0, 0, 0}})
		}
	}()
	got, err := svc.Pool(context.Background(), params, &set)
	if err != nil || len(got.Data) != 20 {
		t.Fatal(got, err)
	}
	for i, v := range got.Data {
		if v.Values[0] != float32(i) {
			t.Errorf("vector %d is %v", i, v.Values)
		}
	}
	if n := s.most.Load(); n > 4 { // the next one may begin before the finished one is counted
		t.Errorf("%d inputs were with the engine at once", n)
	}
	go func() { (<-s.push)(engine.Event{Finish: engine.FinishError, Err: engine.ErrNotNumbers}) }()
	s.cancelled.Store(0)
	if _, err := svc.Pool(context.Background(), params, &set); !errors.Is(err, engine.ErrNotNumbers) {
		t.Errorf("it ended with %v", err)
	}
	if n := s.cancelled.Load(); n != 3 {
		t.Errorf("%d streams were cancelled", n)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := svc.Pool(ctx, params, &set); chat.AsError(err).Kind != chat.Gone {
		t.Errorf("the client has left: %v", err)
	}
}

// TestPoolRefused checks that tasks that the model does not support are refused.
func TestPoolRefused(t *testing.T) {
	set := chattest.Settings()
	params := pooling.Params{Inputs: []chat.Prompt{{Text: "x"}}}
	for name, c := range map[string]struct {
		p    *chat.PoolingConfig
		task string
	}{
		"generates": {nil, chat.TaskEmbed}, "embeds": {chattest.Embeds(), chat.TaskClassify}, "unknown": {chattest.Embeds(), "sing"},
		"classifies": {chattest.Classifies("a", "b"), chat.TaskScore}, "by token": {&chat.PoolingConfig{Task: chat.TaskEmbed, Mode: engine.PoolingAll}, chat.TaskEmbed},
	} {
		a := params
		a.Task = c.task
		_, err := pooling.New(chattest.Service(&chattest.Model{Pooling: c.p})).Pool(context.Background(), a, &set)
		if err == nil || chat.AsError(err).Kind != chat.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}
