//go:build browser

package page

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// rich is a reply with everything of Markdown that the page shows.
const rich = "# Top\n\n## Next\n\n**bold** *slanted* ~~gone~~ `x := 1`\nsecond line\n\n- a\n  - b\n\n3. c\n4. d\n\n> said\n\n---\n\n" +
	"| l | r |\n|:--|--:|\n| 1 | 2 |\n\n[web](https://example.org/a?b=1 \"title\") https://example.com/auto [mail](mailto:a@b.c) [here](/admin) ![a picture](http://example.org/p.png) [ref]\n\n" +
	"```Go title=x\nfunc f() string { return \"<b>\" }\n```\n\n```nosuch\nplain <i>\n```\n\n    indented\n\n<u>raw</u>\n\n[ref]: https://example.net/late"

// count returns an expression that is true if a selector matches n elements of the last reply.
func count(selector string, n string) chromedp.Action {
	return until(`[...document.querySelectorAll('.content')].at(-1).querySelectorAll(` + quoted(selector) + `).length === ` + n)
}

// TestMarkdown checks the elements of each construct, the attributes of links, the colors of code,
// and both ways of copying.
func TestMarkdown(t *testing.T) {
	s := scripted(t, nil, func(engine.Request) chattest.Script { return chattest.Script{Text: "</think>" + rich} })
	s.fast.Store(true)
	ctx := browse(t)
	do(t, ctx, "ask", chromedp.Navigate(s.url), says("#phase", "ready"), enter("go"), says(".facts", "stop"))
	for selector, n := range map[string]string{
		"h3": "1", "h4": "1", "strong": "1", "em": "1", "s": "1", "p > code": "1", "p > br": "1", "ul ul > li": "1", "ol[start='3'] > li": "2", "blockquote > p": "1", "hr": "1",
		".table table td.right": "1", "thead th": "2", "img": "0", "u": "0", "i": "0", ".code": "3", "a": "4",
		`a[href="https://example.org/a?b=1"][target=_blank][rel="noopener noreferrer"]`: "1", `a[href="https://example.com/auto"]`: "1",
		`a[href="http://example.org/p.png"]`: "1", `a[href="https://example.net/late"]`: "1",
		".code .hljs-keyword": "2", ".code .hljs-string": "1",
	} {
		do(t, ctx, selector, count(selector, n))
	}
	do(t, ctx, "texts", says(".content", "<u>raw</u>"), says(".content", "[mail](mailto:a@b.c)"), says(".content", "[here](/admin)"), says(".content", "image: a picture"),
		until(`[...document.querySelectorAll('.lang')].map(e => e.textContent).join() === 'Go,nosuch,text'`),
		until(`document.querySelector('.code code').textContent === 'func f() string { return "<b>" }'`))
	do(t, ctx, "the clipboard", chromedp.Evaluate(`navigator.clipboard.writeText = async t => { window.copied = t; }; 0`, nil), chromedp.Click(".code button", chromedp.ByQuery),
		until(`window.copied === 'func f() string { return "<b>" }\n' && document.querySelector('.code button').textContent === 'Copied'`),
		chromedp.Click(".assistant .actions button", chromedp.ByQuery), until(`window.copied === `+quoted(rich)))
	do(t, ctx, "without a clipboard", chromedp.Evaluate(`Object.defineProperty(navigator, 'clipboard', {value: undefined});
		document.addEventListener('copy', () => { window.copied = document.activeElement.value; }); 0`, nil), chromedp.Click(".code ~ .code button", chromedp.ByQuery),
		until(`window.copied === 'plain <i>\n' && !document.querySelector('body > textarea')`))
}

// TestStreaming checks that a long reply grows in place: finished blocks are not built again, a
// block of code keeps its elements while it grows, and a screen reader hears each block once.
func TestStreaming(t *testing.T) {
	text := "first\n\n```go\n" + strings.Repeat("x := 1 // y\n", 40) + "```\n\nlast"
	s := scripted(t, nil, func(engine.Request) chattest.Script { return chattest.Script{Text: "</think>" + text} })
	ctx := browse(t)
	do(t, ctx, "ask", chromedp.Navigate(s.url), says("#phase", "ready"), enter("go"), until(`document.querySelectorAll('.code .hljs-comment').length > 2`),
		chromedp.Evaluate(`window.kept = [document.querySelector('.content > p'), document.querySelector('.content > .code'), document.querySelector('.code button')]; 0`, nil),
		says(".facts", "stop"), until(`kept.every(e => e.isConnected) && document.querySelectorAll('.code .hljs-comment').length === 40`),
		until(`[...document.querySelectorAll('#said p')].map(p => p.textContent.slice(0, 12).replace(/\d+ tokens?.*/, 'facts')).join('|').startsWith('The model re|first|Code: x := 1|last|')`),
		until(`document.querySelector('#log').getAttribute('aria-live') === 'off' && document.querySelector('#said').getAttribute('aria-live') === 'polite'`))
}

// TestConversations checks that conversations survive a reload, are listed, opened and deleted, that
// both kinds of deletion can be undone, and what happens when the storage is full.
func TestConversations(t *testing.T) {
	s := scripted(t, nil, func(engine.Request) chattest.Script { return chattest.Script{Text: "hm</think>**Yes**, indeed."} })
	ctx := browse(t)
	titles := func(want string) chromedp.Action {
		return until(`[...document.querySelectorAll('#list .title')].map(e => e.textContent).join() === ` + quoted(want))
	}
	do(t, ctx, "two chats", chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.url), says("#phase", "ready"), enter("one"), says(".facts", "stop"), titles("one"),
		press("n", "KeyN", input.ModifierAlt), until(`!document.querySelector('.message') && !document.querySelector('#welcome').hidden`), enter("two"), says(".facts", "stop"), titles("two,one"))
	do(t, ctx, "F5", chromedp.Reload(), says("#phase", "ready"), titles("two,one"), says(".user .text", "two"), says(".content strong", "Yes"), says(".facts", "tokens/s"),
		says(".reasoning .text", "hm"), until(`document.querySelector('#list [aria-current]').textContent === 'two'`))
	do(t, ctx, "the other", chromedp.Click("#list li:nth-child(2) .title", chromedp.ByQuery), says(".user .text", "one"), enter("three"), until(`document.querySelectorAll('.facts').length === 2`), says(".facts", "stop"), titles("one,two"))
	if r := s.Requests(); len(r) != 3 {
		t.Errorf("%d requests", len(r))
	}
	do(t, ctx, "delete", chromedp.Focus("#list li:nth-child(1) .title", chromedp.ByQuery), chromedp.Click("#list li:nth-child(1) .delete", chromedp.ByQuery), titles("two"),
		until(`!document.querySelector('.message')`), says("#toast", "Deleted “one”."), chromedp.Click("#toast-act", chromedp.ByQuery), titles("one,two"))
	do(t, ctx, "delete all", chromedp.Click("#clear", chromedp.ByQuery), titles(""), says("#chats-note", "None yet"), chromedp.Click("#toast-act", chromedp.ByQuery), titles("one,two"))
	do(t, ctx, "too many", chromedp.Evaluate(`{ const list = [];
		for (let i = 0; i < 100; i++) { list.push({id: 'c' + i, title: 't' + i, at: 1000 - i, chars: 10}); localStorage.setItem('vapp.chat.c' + i, '{"title":"t","at":1,"messages":[]}'); }
		localStorage.setItem('vapp.chats', JSON.stringify(list)); } 0`, nil), enter("hundred and one"), says(".facts", "stop"),
		until(`document.querySelectorAll('#list li').length === 100 && localStorage.getItem('vapp.chat.c99') === null && localStorage.getItem('vapp.chat.c98') !== null`), says("#toast", "made place"))
	do(t, ctx, "a full storage", chromedp.Evaluate(`{ localStorage.clear(); let n = 1 << 22; while (n > 2) { try { localStorage.setItem('x' + n, 'x'.repeat(n)); n -= 1; } catch { n >>= 1; } } } 0`, nil),
		enter("full"), says("#chats-note", "does not store"), says(".facts", "stop"), says(".content", "indeed"))
	do(t, ctx, "a broken storage", chromedp.Evaluate(`localStorage.clear(); localStorage.setItem('vapp.chats', '[{"id":"a","title":"odd","at":1,"chars":1},{"id":7},null,"x"]');
		localStorage.setItem('vapp.chat.a', '{"title":"odd","messages":[{"role":"assistant","content":{"x":1}}]}'); 0`, nil), chromedp.Reload(), says("#phase", "ready"), titles("odd"),
		chromedp.Click("#list .title", chromedp.ByQuery), says("#toast", "cannot be read"), chromedp.Click("#toast-act", chromedp.ByQuery), titles(""))
}

// TestEdit checks that a message is edited and a reply requested again, that both can be undone,
// and that the model gets the replaced conversation.
func TestEdit(t *testing.T) {
	var turn atomic.Int32
	s := scripted(t, nil, func(engine.Request) chattest.Script {
		return chattest.Script{Text: "</think>" + []string{"first", "second", "third", "fourth"}[min(3, turn.Add(1)-1)]}
	})
	ctx := browse(t)
	contents := func(want string) chromedp.Action {
		return until(`[...document.querySelectorAll('.user .text, .content')].map(e => e.textContent).join() === ` + quoted(want) + ` && !document.querySelector('#send').hidden`)
	}
	do(t, ctx, "ask", chromedp.Navigate(s.url), says("#phase", "ready"), enter("one"), contents("one,first"))
	do(t, ctx, "again", chromedp.Click(".again", chromedp.ByQuery), contents("one,second"), chromedp.Click("#toast-act", chromedp.ByQuery), contents("one,first"))
	do(t, ctx, "edit", press("ArrowUp", "ArrowUp"), until(`document.activeElement.closest('.editor') && document.activeElement.value === 'one'`),
		press("Escape", "Escape"), until(`!document.querySelector('.editor')`), press("ArrowUp", "ArrowUp"), until(`document.activeElement.closest('.editor')`),
		chromedp.SendKeys(".editor textarea", "!", chromedp.ByQuery), press("Enter", "Enter"), contents("one!,third"), says("#list .title", "one!"))
	asked := s.Requests()
	if len(asked) != 3 || len(asked[0].Prompt) != len(asked[1].Prompt) || len(asked[2].Prompt) != len(asked[0].Prompt)+1 {
		t.Errorf("%d requests, prompts of %d, %d and %d tokens", len(asked), len(asked[0].Prompt), len(asked[1].Prompt), len(asked[2].Prompt))
	}
	do(t, ctx, "undo", chromedp.Click("#toast-act", chromedp.ByQuery), contents("one,first"), chromedp.Reload(), contents("one,first"))
}

// TestEnds checks that the reply shows why it ended.
func TestEnds(t *testing.T) {
	var text atomic.Pointer[chattest.Script]
	text.Store(&chattest.Script{Text: "</think>cut", Finish: engine.FinishLength})
	s := scripted(t, nil, func(engine.Request) chattest.Script { return *text.Load() })
	ctx := browse(t)
	do(t, ctx, "length", chromedp.Navigate(s.url), says("#phase", "ready"), enter("go"), says(".facts.cut", "length: cut at max_tokens"))
	half := make(chan struct{})
	broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-half
		panic(http.ErrAbortHandler)
	})
	s.answer.Store(&broken)
	do(t, ctx, "half a reply", enter("more"), says(".content", "half"))
	close(half)
	do(t, ctx, "a broken stream", says(".facts.bad", "lost in the middle of the reply"), says(".again", "Regenerate"))
}

// TestServer checks the server's values in the settings, the badge, the banners of a server that
// loads or does not answer, and that the columns and the color scheme are remembered.
func TestServer(t *testing.T) {
	s := scripted(t, nil, func(engine.Request) chattest.Script { return chattest.Script{Text: "</think>Yes."} })
	ctx := browse(t)
	placeholder := func(id, want string) chromedp.Action {
		return until(`document.querySelector('#` + id + `').placeholder === ` + quoted(want))
	}
	with := func(fields string) { s.status.Store(ptr(strings.TrimSuffix(fixed, "}") + fields + "}")) }
	with(`,"sampling":{"temperature":1,"top_p":0.95,"top_k":0,"min_p":0,"repetition_penalty":1.1,"max_model_len":8192}`)
	do(t, ctx, "values", chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.url), says("#phase", "ready"), placeholder("temperature", "1.0 (server)"), placeholder("top_p", "0.95 (server)"), placeholder("top_k", "off (server)"),
		placeholder("max_tokens", "to the end of 8,192"), placeholder("repetition_penalty", "1.1 (server)"), until(`document.querySelector('#badge').hidden`))
	with(`,"sampling":{"temperature":0.2,"top_p":1,"top_k":40,"min_p":0,"repetition_penalty":1,"max_tokens":100,"max_model_len":8192},"pending":{"since":"2026-01-02T03:04:05Z","changes":["a: 1 → 2","b: 1 → 2"]}`)
	const refresh = `document.querySelector('#key').dispatchEvent(new Event('change'))` // asks the server at once
	do(t, ctx, "pending", chromedp.Evaluate(refresh, nil), says("#badge.warn", "2 changes pending"), says("#pending-list", "b: 1 → 2"), placeholder("top_k", "40 (server)"), placeholder("max_tokens", "100 (server)"))
	s.status.Store(ptr(strings.Replace(fixed, `"reloads":[`, `"reloads":[{"at":"2026-01-02T03:05:05Z","trigger":"file","class":"none","outcome":"rejected","error":"p.cue:3: no"},`, 1)))
	do(t, ctx, "rejected", chromedp.Evaluate(refresh, nil), says("#badge.bad", "profile rejected"), chromedp.Click("#show-state", chromedp.ByQuery), until(`getComputedStyle(document.querySelector('aside')).display === 'none'`),
		chromedp.Click("#badge", chromedp.ByQuery), until(`getComputedStyle(document.querySelector('aside')).display === 'block' && document.activeElement.id === 'reloads-title'`))
	do(t, ctx, "remembered", press("s", "KeyS", input.ModifierAlt), press("c", "KeyC", input.ModifierAlt), chromedp.Click("#theme", chromedp.ByQuery), chromedp.Click("#theme", chromedp.ByQuery), chromedp.Reload(), says("#phase", "ready"),
		until(`['aside', '#chats'].every(e => getComputedStyle(document.querySelector(e)).display === 'none') && document.querySelector('#show-state').getAttribute('aria-expanded') === 'false'`),
		until(`getComputedStyle(document.body).backgroundColor === 'rgb(17, 20, 24)' && document.querySelector('#theme').title === 'Color scheme: dark'`))

	s.status.Store(ptr(strings.Replace(fixed, `"ready"`, `"loading"`, 1)))
	unready := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"message":"The server is not ready."}}`)
	})
	s.answer.Store(&unready)
	do(t, ctx, "loading", chromedp.Evaluate(refresh, nil), says("#banner", "The server is loading."), enter("now?"), says(".facts.bad", "503: The server is not ready. The server is loading. Try again in 2 s."))
	s.answer.Store(nil)
	s.status.Store(ptr(fixed))
	s.lost.Store(true)
	do(t, ctx, "lost", chromedp.Evaluate(refresh, nil), says("#banner", "The server does not answer. Is vapp running?"), says("#phase", "no answer"), press("Enter", "Enter"), says(".facts.bad", "Is vapp running?"), until(`!document.body.textContent.includes('Failed to fetch')`))
	s.lost.Store(false)
	do(t, ctx, "back", chromedp.Click("#banner-act", chromedp.ByQuery), says("#phase", "ready"), until(`document.querySelector('#banner').hidden`),
		chromedp.Click(".unanswered .again", chromedp.ByQuery), says(".content", "Yes."), until(`document.querySelectorAll('.message').length === 2 && document.querySelector('#text').value === ''`))
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// TestKeyboard checks the way of the focus, the keys, and that every control has a name.
func TestKeyboard(t *testing.T) {
	s := scripted(t, nil, func(engine.Request) chattest.Script {
		return chattest.Script{Text: "</think>Yes. [a](https://example.org)"}
	})
	ctx := browse(t)
	do(t, ctx, "an example", chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.url), says("#phase", "ready"), until(`document.activeElement.id === 'text'`),
		until(`document.querySelectorAll('#examples button').length === 4`), chromedp.Focus("#examples button", chromedp.ByQuery), press("Enter", "Enter"),
		says(".user .text", "What is the capital of France?"), says(".facts", "stop"), until(`document.activeElement.id === 'text'`))
	do(t, ctx, "two lines", chromedp.SendKeys("#text", "a", chromedp.ByQuery), press("Enter", "Enter", input.ModifierShift), chromedp.SendKeys("#text", "b", chromedp.ByQuery),
		until(`document.querySelector('#text').value === 'a\nb' && document.querySelectorAll('.user').length === 1`), chromedp.Evaluate(`document.querySelector('#text').value = ''; document.activeElement.blur()`, nil))
	var seen []string
	do(t, ctx, "from the start", chromedp.Evaluate(`document.body.focus(); 0`, nil))
	for range 24 {
		var at string
		do(t, ctx, "Tab", press("Tab", "Tab"), chromedp.Evaluate(`(e => e.id || e.className || e.tagName)(document.activeElement) + (getComputedStyle(document.activeElement).outlineStyle === 'none' && !['text', ''].includes(document.activeElement.id || (document.activeElement === document.body ? '' : 'x')) ? ' unseen' : '')`, &at))
		seen = append(seen, at)
	}
	want := "skip show-chats model fresh show-settings show-state theme show-help title quiet delete clear log quiet quiet edit A quiet quiet again text send"
	if got := strings.Join(seen, " "); !strings.Contains(got, want) || strings.Contains(got, "unseen") {
		t.Errorf("the focus goes\n%s, want\n%s", got, want)
	}
	do(t, ctx, "?", chromedp.Evaluate(`document.activeElement.blur()`, nil), press("?", "Slash", input.ModifierShift), until(`document.querySelector('#help').open`), press("Escape", "Escape"), until(`!document.querySelector('#help').open`),
		press("/", "Slash"), until(`document.activeElement.id === 'text'`))
	do(t, ctx, "a wrong number", chromedp.Click("#show-settings", chromedp.ByQuery), until(`document.activeElement.id === 'temperature'`), chromedp.SendKeys("#tools", "{", chromedp.ByQuery), press("Escape", "Escape"), until(`document.querySelector('#settings').hidden && document.activeElement.id === 'text'`),
		chromedp.Evaluate(`document.querySelector('#tools').dispatchEvent(new Event('change'))`, nil), says("#show-settings", "Settings (1)"),
		enter("x"), says(".facts.bad", "The tools are not valid JSON"), chromedp.Click("#show-settings", chromedp.ByQuery), chromedp.Click("#reset", chromedp.ByQuery), until(`document.querySelector('#show-settings').textContent === 'Settings'`))
	var nameless string
	do(t, ctx, "names", chromedp.Evaluate(`[...document.querySelectorAll('button, a, input, select, textarea')].filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label'))).map(e => e.outerHTML).filter(h => !/toast-act|badge|banner-act/.test(h)).join(' ')`, &nameless))
	if nameless != "" {
		t.Errorf("without a name: %s", nameless)
	}
}
