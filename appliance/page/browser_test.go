//go:build browser

package page

// These tests open the page in Chromium, with a scripted model.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
	"vapp.dev/engine/tokenizer"
)

// patience is the time limit of every test.
const patience = 2 * time.Minute

// browse opens a tab. The test fails if the page logs an error.
func browse(t *testing.T) context.Context {
	t.Helper()
	ctx := tab(t)
	chromedp.ListenTarget(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page threw: %s", ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			// The browser logs every error status of a request.
			if ev.Entry.Source != log.SourceNetwork {
				t.Errorf("the browser says: %s %s", ev.Entry.Text, ev.Entry.URL)
			}
		}
	})
	return ctx
}

// shared is the browser of all tests, started by the first.
var shared struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	os.Exit(code)
}

// launch starts the shared browser.
func launch() {
	path := os.Getenv("CHROMIUM")
	if path == "" {
		shared.err = errors.New("CHROMIUM names no browser; make browser finds or installs one")
		return
	}
	dir, err := os.MkdirTemp("", "vapp-browser-")
	if err != nil {
		shared.err = err
		return
	}
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.NoFirstRun, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(patience))
	ctx, release := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(ctx)
	shared.ctx = ctx
	shared.stop = func() {
		_ = chromedp.Cancel(ctx) // the tests have ended
		end()
		release()
		_ = os.RemoveAll(dir) // the browser may still write
	}
	shared.err = chromedp.Run(ctx)
}

// tab opens a tab with a storage of its own.
func tab(t *testing.T) context.Context {
	t.Helper()
	shared.once.Do(launch)
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	var profile cdp.BrowserContextID
	var id target.ID
	do(t, shared.ctx, "a new window", chromedp.ActionFunc(func(ctx context.Context) (err error) {
		ctx = cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser)
		if profile, err = target.CreateBrowserContext().Do(ctx); err != nil {
			return err
		}
		id, err = target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(ctx)
		return err
	}))
	ctx, stop := chromedp.NewContext(shared.ctx, chromedp.WithTargetID(id))
	t.Cleanup(func() {
		stop()
		_ = chromedp.Run(shared.ctx, chromedp.ActionFunc(func(ctx context.Context) error {
			return target.DisposeBrowserContext(profile).Do(cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser))
		})) // the browser ends with the tests
	})
	ctx, stop = context.WithTimeout(ctx, patience)
	t.Cleanup(stop)
	return ctx
}

func do(t *testing.T, ctx context.Context, what string, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			_ = chromedp.Run(ctx, chromedp.Text("body", &text, chromedp.ByQuery))
		}
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
}

// until waits for an expression of the page to be true.
func until(expression string) chromedp.Action {
	return chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(50*time.Millisecond))
}

// says waits until the text of the last matching element contains a part.
func says(selector, part string) chromedp.Action {
	return until(`[...document.querySelectorAll('` + selector + `')].at(-1)?.textContent.includes(` + quoted(part) + `)`)
}

// press sends a key event as a keyboard does: a key that the page handles inserts no text.
func press(key, code string, with ...input.Modifier) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var held input.Modifier
		for _, m := range with {
			held |= m
		}
		k := int64(map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38}[key])
		text := map[string]string{"Enter": "\r"}[key]
		if err := input.DispatchKeyEvent(input.KeyDown).WithKey(key).WithCode(code).WithModifiers(held).WithWindowsVirtualKeyCode(k).WithText(text).Do(ctx); err != nil {
			return err
		}
		return input.DispatchKeyEvent(input.KeyUp).WithKey(key).WithCode(code).WithModifiers(held).WithWindowsVirtualKeyCode(k).Do(ctx)
	})
}

// enter types a text into the message field and sends it.
func enter(text string) chromedp.Action {
	return chromedp.Tasks{chromedp.SendKeys("#text", text, chromedp.ByQuery), press("Enter", "Enter")}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string has a form in JSON
	}
	return string(b)
}

// ready is an api.State.
type ready struct{ svc *chat.Service }

func (ready) Phase() string   { return "ready" }
func (r ready) Ready() bool   { return true }
func (r ready) Healthy() bool { return true }

func (r ready) Enter(context.Context) (*chat.Service, func(), error) { return r.svc, func() {}, nil }

// fixed is the reply of GET /admin/status.
const fixed = `{"phase":"ready","models":["test","also"],"plan":{"model":"org/model","backend":"cpu","device":"a machine","total_bytes":1000,
"segments":[{"name":"weights","bytes":600,"what":"weights"},{"name":"KV cache","bytes":400,"what":"kv"}],"lengths":[{"tokens":4096,"sequences":7,"running":5}]},
"ledger":[{"item":"weights","plan_bytes":600,"actual_bytes":600},{"item":"kv","plan_bytes":400,"actual_bytes":464}],
"now":{"running":3,"waiting":2,"kv_used":0.25,"generated":10},
"reloads":[{"at":"2026-01-02T03:04:05Z","trigger":"file","class":"live","outcome":"applied","changes":["serve.accessLog: true → false (live)"]}]}`

const tool = `[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`

// site is a server with a scripted model.
type site struct {
	*chattest.Model
	url    string
	status atomic.Pointer[string]           // the reply of GET /admin/status
	lost   atomic.Bool                      // every request of the API ends without an answer
	fast   atomic.Bool                      // tokens arrive as fast as they can
	answer atomic.Pointer[http.HandlerFunc] // answers POST in place of the API, if not nil
	server *httptest.Server
}

// close ends the server and its connections.
func (s *site) close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// scripted starts a server whose model replies with the result of say.
func scripted(t *testing.T, keys []string, say func(r engine.Request) chattest.Script) *site {
	t.Helper()
	return start(t, keys, nil, say)
}

// sighted is scripted with a model that takes images.
func sighted(t *testing.T, v *chattest.Vision, say func(r engine.Request) chattest.Script) *site {
	t.Helper()
	return start(t, nil, v, say)
}

func start(t *testing.T, keys []string, v *chattest.Vision, say func(r engine.Request) chattest.Script) *site {
	t.Helper()
	out := &site{Model: &chattest.Model{Say: func(r engine.Request, _ int) chattest.Script { return say(r) }}}
	out.status.Store(ptr(fixed))
	cfg := chattest.Config(out.Model)
	cfg.ModelLen = 1 << 20
	set := api.Settings{
		Keys: keys, MaxBodyBytes: 16 << 20, CORS: api.CORS{Methods: []string{"*"}, Headers: []string{"*"}}, Chat: chattest.Settings(),
	}
	set.Chat.Models = append(set.Chat.Models, "smollm2", "smollm2-135m")
	if v != nil {
		set.Chat.Vision, set.Chat.Template = v, chattest.Template{Format: tokenizer.ContentOpenAI}
	}
	set.Chat.Reasoning, set.Chat.Tools, set.Chat.AutoToolChoice = "qwen3", "hermes", true
	s := api.New(api.Config{
		State: ready{chat.New(cfg)}, Log: slog.New(slog.DiscardHandler), Page: Handler(),
		Status: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, *out.status.Load()) }),
	}, set)
	out.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if out.lost.Load() {
			panic(http.ErrAbortHandler)
		}
		if other := out.answer.Load(); other != nil && r.Method == "POST" {
			(*other)(w, r)
			return
		}
		if !out.fast.Load() {
			w = slow{w}
		}
		s.Handler().ServeHTTP(w, r)
	}))
	out.url = out.server.URL
	t.Cleanup(out.server.Close)
	return out
}

func ptr[T any](v T) *T { return &v }

// slow is a response writer that delays each write, so that tokens arrive one by one.
type slow struct{ http.ResponseWriter }

func (w slow) Write(b []byte) (int, error) {
	time.Sleep(2 * time.Millisecond)
	return w.ResponseWriter.Write(b)
}

// Unwrap implements the interface of http.ResponseController.
func (w slow) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestChat checks that reasoning is folded, that the model's markup is shown as text, that a
// tool is called and answered, and that the next turn contains all of it.
func TestChat(t *testing.T) {
	var turn atomic.Int32
	s := scripted(t, nil, func(engine.Request) chattest.Script {
		return chattest.Script{Text: []string{
			"Let me see.</think>Here:\n```go\nfunc main() {}\n```\nand <b onclick=alert(1)>bold</b>.",
			`hm</think><tool_call>{"name": "weather", "arguments": {"city": "Zürich"}}</tool_call>`,
			"so</think>It is sunny.",
		}[min(2, turn.Add(1)-1)]}
	})
	ctx := browse(t)
	do(t, ctx, "open", log.Enable(), runtime.Enable(), chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.url),
		says("#phase", "ready"), says("#legend", "KV cache400 B"), says("#ledger", "+64 B"), says("#reloads", "applied · live"), says("#waiting", "2"))
	do(t, ctx, "the first turn", chromedp.SendKeys("#text", "hello"+kb.Enter, chromedp.ByQuery),
		says(".facts", "stop"), says(".facts", "tokens/s"), says(".content pre", "func main() {}"), says(".content", "<b onclick=alert(1)>bold</b>"),
		until(`!document.querySelector('details.reasoning').open && document.querySelector('details.reasoning .text').textContent === 'Let me see.'`),
		until(`!document.querySelector('.content b')`))
	do(t, ctx, "a tool", chromedp.Click("#show-settings", chromedp.ByQuery), chromedp.SendKeys("#tools", tool, chromedp.ByQuery),
		chromedp.SendKeys("#temperature", "0.5", chromedp.ByQuery), chromedp.Evaluate(`document.activeElement.dispatchEvent(new Event('change'))`, nil),
		chromedp.KeyEvent(kb.Escape), until(`document.querySelector('#settings').hidden`),
		chromedp.SendKeys("#text", "weather?"+kb.Enter, chromedp.ByQuery),
		says(".call b", "weather"), says(".call pre", `"city": "Zürich"`), says(".facts", "tool_calls"))
	do(t, ctx, "its answer", chromedp.SendKeys(".call input", "sunny"+kb.Enter, chromedp.ByQuery), says(".content", "It is sunny."), says(".facts", "stop"))
	asked := s.Requests()
	if len(asked) != 3 || asked[1].Params.Temperature != 0.5 {
		t.Errorf("%d requests, temperature %v", len(asked), asked[1].Params.Temperature)
	}
	do(t, ctx, "dark", dark(true))
	do(t, ctx, "a phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), dark(false),
		until(`document.documentElement.scrollWidth <= innerWidth && getComputedStyle(document.querySelector('aside')).display === 'none'`))
	do(t, ctx, "its panel", chromedp.Click("#show-state", chromedp.ByQuery), until(`getComputedStyle(document.querySelector('aside')).display === 'block'`))
	do(t, ctx, "back", chromedp.Click("#show-state", chromedp.ByQuery))
	do(t, ctx, "a new chat", chromedp.Click("#fresh", chromedp.ByQuery), until(`!document.querySelector('.message') && !document.querySelector('#welcome').hidden`))
}

// TestStop checks that Esc cancels an endless reply in the engine, and that the chat
// continues.
func TestStop(t *testing.T) {
	s := scripted(t, nil, func(engine.Request) chattest.Script {
		return chattest.Script{Text: "no </think>end ", Endless: true}
	})
	ctx := browse(t)
	do(t, ctx, "stop", chromedp.Navigate(s.url), says("#phase", "ready"), chromedp.SendKeys("#text", "go on"+kb.Enter, chromedp.ByQuery),
		says(".content", "end"), until(`!document.querySelector('#stop').hidden`), chromedp.KeyEvent(kb.Escape),
		says(".facts", "stopped"), until(`document.querySelector('#stop').hidden && !document.querySelector('#send').hidden`))
	for deadline := time.Now().Add(patience); s.Cancelled() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got no cancelled choice within %s, want 1", patience)
		}
	}
	do(t, ctx, "again, by the button", chromedp.SendKeys("#text", "more"+kb.Enter, chromedp.ByQuery), chromedp.WaitVisible("#stop", chromedp.ByQuery),
		until(`document.querySelectorAll('.content').length === 2`), chromedp.Click("#stop", chromedp.ByQuery), says(".facts", "stopped"))
}

// TestKey checks that the page asks for the key and works with it.
func TestKey(t *testing.T) {
	s := scripted(t, []string{"secret"}, func(engine.Request) chattest.Script { return chattest.Script{Text: "</think>Yes."} })
	ctx := browse(t)
	do(t, ctx, "without", chromedp.Navigate(s.url), says("#phase", "needs a key"), chromedp.SendKeys("#text", "may I?"+kb.Enter, chromedp.ByQuery),
		says(".facts.bad", "401: Unauthorized"), until(`document.activeElement.id === 'key' && document.querySelector('#text').value === 'may I?'`))
	do(t, ctx, "with", chromedp.SendKeys("#key", "secret"+kb.Enter, chromedp.ByQuery), says("#phase", "ready"),
		chromedp.SendKeys("#text", kb.Enter, chromedp.ByQuery), says(".content", "Yes."))
}
