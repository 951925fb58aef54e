package chat_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine/tokenizer"
)

// gated is a tokenizer whose windows end when the test allows it.
type gated struct {
	*chattest.Model
	started chan string   // receives the text of each window that begins
	finish  chan struct{} // lets one window end
	windows int           // per text

	mu       sync.Mutex
	now, top int
	texts    []string
	decoded  int // maximum ids in one Decode
	ended    int // windows
	held     int // maximum ids before a window
}

func (g *gated) Decode(ids []int32, skipSpecial bool) (string, error) {
	g.decoded = max(g.decoded, len(ids))
	return g.Model.Decode(ids, skipSpecial)
}

func (g *gated) Encoding(text string, _ bool) chat.Encoding {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.texts = append(g.texts, text)
	return &gatedText{g: g, text: text, left: g.windows}
}

type gatedText struct {
	g    *gated
	text string
	left int
}

func (e *gatedText) Done() bool { return e.left == 0 }

func (e *gatedText) Next(ids []int32) ([]int32, error) {
	g := e.g
	g.count(1)
	defer g.count(-1)
	if g.started != nil {
		g.started <- e.text
		<-g.finish
	}
	e.left--
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended, g.held = g.ended+1, max(g.held, len(ids))
	return append(ids, 1, 2, 3), nil
}

func (g *gated) running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

func (g *gated) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.top = max(g.top, g.now)
}

func gatedService(g *gated, workers, modelLen int) *chat.Service {
	g.Model = &chattest.Model{}
	cfg := chattest.Config(g.Model)
	cfg.Text, cfg.TextWorkers = g, workers
	if modelLen > 0 {
		cfg.ModelLen = modelLen
	}
	return chat.New(cfg)
}

// TestTextWorkers checks that at most as many windows as workers are encoded at the same time,
// and that a cancelled request encodes no further window.
func TestTextWorkers(t *testing.T) {
	const requests, windows = 9, 3
	g := &gated{started: make(chan string), finish: make(chan struct{}), windows: windows}
	svc, set := gatedService(g, 2, 0), chattest.Settings()
	ctx, leave := context.WithCancel(context.Background())
	errs := make(chan error, requests)
	for range requests {
		go func() {
			_, err := svc.Tokenize(ctx, chat.TokenizeParams{Text: "x"}, &set)
			errs <- err
		}()
	}
	// wait until every request is being encoded or waits for a worker
	chat.AwaitWaiting(svc, func(waiting int) bool { return waiting+g.running() == requests })
	if n := g.running(); n != 2 {
		t.Fatalf("%d windows are encoded at once, want 2", n)
	}
	<-g.started
	<-g.started
	leave()
	for range requests - 2 { // the waiting ones end at once
		if err := <-errs; kindOf(err) != chat.Gone {
			t.Fatal(err)
		}
	}
	close(g.finish)
	for range 2 { // the others end with their window
		if err := <-errs; kindOf(err) != chat.Gone {
			t.Fatal(err)
		}
	}
	if g.top != 2 {
		t.Errorf("%d windows were encoded at once, want 2", g.top)
	}
	// the workers are free again
	go func() {
		for range g.started {
		}
	}()
	out, err := svc.Tokenize(context.Background(), chat.TokenizeParams{Text: "x"}, &set)
	if err != nil || out.Count != 3*windows {
		t.Errorf("%v %v", out, err)
	}
	close(g.started)
}

// TestTextWorkersShare checks that a short text waits for only one window of a long text.
func TestTextWorkersShare(t *testing.T) {
	g := &gated{started: make(chan string), finish: make(chan struct{}), windows: 4}
	svc, set := gatedService(g, 1, 1<<20), chattest.Settings()
	var all sync.WaitGroup
	var over atomic.Int32
	ask := func(text string) {
		all.Go(func() {
			if _, err := svc.Tokenize(context.Background(), chat.TokenizeParams{Text: text}, &set); err != nil {
				t.Error(err)
			}
			over.Add(1)
		})
	}
	long := strings.Repeat("x", tokenizer.Window+1)
	ask(long)
	<-g.started
	ask("short")
	var order []string
	for range 7 {
		chat.AwaitWaiting(svc, func(waiting int) bool { return waiting == 1 || over.Load() > 0 })
		g.finish <- struct{}{}
		order = append(order, (<-g.started)[:1])
	}
	g.finish <- struct{}{}
	all.Wait()
	if got := strings.Join(order, ""); got != "sxsxsxs" {
		t.Errorf("turns of a short text beside a long one: %s", got)
	}
}

// TestTextRefused checks that a text that is too long is refused before it is encoded, in
// every kind of request.
func TestTextRefused(t *testing.T) {
	g := &gated{windows: 1}
	svc, set := gatedService(g, 1, 64), chattest.Settings()
	set.TrustRequestChatTemplate = true
	longest := 0
	for id := range int32(g.VocabSize()) {
		longest = max(longest, len(g.TokenBytes(id)))
	}
	long := strings.Repeat("7", 64*longest+1)
	conversation := &chat.Conversation{Messages: []chat.Message{{Role: "user", Text: strings.Repeat(long, 4), HasContent: true}}, AddGenerationPrompt: true}
	ctx, minus := context.Background(), -1
	start := func(a chat.RequestParams) error {
		a.N = 1
		r, err := chat.NewRequest(a, &set)
		if err == nil {
			_, err = svc.Start(ctx, r)
		}
		return err
	}
	for name, c := range map[string]struct {
		do   func() error
		kind chat.Kind
	}{
		"a prompt":        {func() error { return start(chat.RequestParams{Prompts: text(long)}) }, chat.TooLong},
		"a second prompt": {func() error { return start(chat.RequestParams{Prompts: append(text("ab"), text(long)...)}) }, chat.TooLong},
		"echo of many tokens": {func() error {
			return start(chat.RequestParams{Prompts: []chat.Prompt{{Tokens: make([]int32, 65)}}, Echo: true})
		}, chat.TooLong},
		"a truncated prompt": {func() error { return start(chat.RequestParams{Prompts: text(long), Truncate: &minus}) }, chat.TooLong},
		"a chat":             {func() error { return start(chat.RequestParams{Chat: conversation}) }, chat.TooLong},
		"a truncated chat":   {func() error { return start(chat.RequestParams{Chat: conversation, Truncate: &minus}) }, chat.TooLong},
		"bad words": {func() error {
			return start(chat.RequestParams{Prompts: text("a"), BadWords: []string{strings.Repeat("7", 1<<17)}})
		}, chat.Invalid},
		"tokenize":        {func() error { _, err := svc.Tokenize(ctx, chat.TokenizeParams{Text: long}, &set); return err }, chat.TooLong},
		"tokenize a chat": {func() error { _, err := svc.Tokenize(ctx, chat.TokenizeParams{Chat: conversation}, &set); return err }, chat.TooLong},
		"count": {func() error {
			_, err := svc.Tokenize(ctx, chat.TokenizeParams{Text: long, CountOnly: true}, &set)
			return err
		}, chat.TooLong},
		"render":               {func() error { _, err := svc.Render(ctx, conversation, &set); return err }, chat.TooLong},
		"detokenize":           {func() error { _, err := svc.Detokenize("", make([]int32, 4*64+1), &set); return err }, chat.TooLong},
		"truncation is absurd": {func() error { n := 1000; return start(chat.RequestParams{Prompts: text("a"), Truncate: &n}) }, chat.Invalid},
	} {
		g.texts = nil
		err := c.do()
		if kindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
		if g.decoded > 0 {
			t.Errorf("%s: %d ids were decoded", name, g.decoded)
		}
		for _, s := range g.texts {
			if len(s) > 1 {
				t.Errorf("%s: %d bytes were encoded", name, len(s))
			}
		}
	}
}

// TestTextTokens checks that of a text with more tokens than the limit the first or the last
// ones are returned, that all are counted, and that at most twice the limit is in memory. A
// text that is refused is not encoded to its end.
func TestTextTokens(t *testing.T) {
	g := &gated{windows: 100}
	svc, set := gatedService(g, 1, 64), chattest.Settings()
	out, err := svc.Tokenize(context.Background(), chat.TokenizeParams{Text: "x", CountOnly: true}, &set)
	if err != nil || out.Count != 300 || out.Tokens != nil || g.held > 64 {
		t.Errorf("counted %d tokens, %d held at once, %v", out.Count, g.held, err)
	}
	g.ended, g.held = 0, 0
	if _, err = svc.Tokenize(context.Background(), chat.TokenizeParams{Text: "x"}, &set); kindOf(err) != chat.TooLong {
		t.Errorf("300 tokens, where 4 times 64 are the most: %v", err)
	}
	if g.ended != 86 { // 3 tokens each
		t.Errorf("%d windows of a text that is refused were encoded, want 86", g.ended)
	}
	g.held = 0
	keep := 5
	r, err := chat.NewRequest(chat.RequestParams{Prompts: text("x"), N: 1, Truncate: &keep}, &set)
	if err != nil {
		t.Fatal(err)
	}
	ready, err := svc.Prepare(context.Background(), r)
	if err != nil || len(ready[0].Tokens) != keep || ready[0].Tokens[0] != 2 || ready[0].Tokens[4] != 3 || g.held > 2*keep {
		t.Errorf("%v, %d ids held at once, %v", ready, g.held, err)
	}
}

// TestTruncatedTokens checks that a truncated prompt of tokens does not keep the removed
// tokens in memory.
func TestTruncatedTokens(t *testing.T) {
	svc, set := gatedService(&gated{}, 1, 64), chattest.Settings()
	keep, ids := 5, make([]int32, 100_000)
	ids[len(ids)-1] = 3
	r, err := chat.NewRequest(chat.RequestParams{Prompts: []chat.Prompt{{Tokens: ids}}, N: 1, Truncate: &keep}, &set)
	if err != nil {
		t.Fatal(err)
	}
	ready, err := svc.Prepare(context.Background(), r)
	if err != nil || len(ready[0].Tokens) != keep || ready[0].Tokens[keep-1] != 3 {
		t.Fatalf("%v %v", ready, err)
	}
	if &ready[0].Tokens[keep-1] == &ids[len(ids)-1] {
		t.Error("the tokens are a part of the request's")
	}
}

func kindOf(err error) chat.Kind {
	var e *chat.Error
	if !errors.As(err, &e) {
		return chat.Internal
	}
	return e.Kind
}
