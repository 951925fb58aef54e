//go:build clients && browser

package clients

// These tests open the page of the real binary with the default model in Chromium. With
// SCREENSHOTS=DIR they write screenshots to DIR.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// pagePatience is the time limit of a wait.
const pagePatience = 3 * time.Minute

// browse opens a tab. The test fails if the page logs an error.
func browse(t *testing.T) context.Context {
	t.Helper()
	dir, err := os.MkdirTemp("", "vapp-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the error is ignored: the browser may still write
	ctx, stop := chromedp.NewExecAllocator(context.Background(), chromedp.NoFirstRun, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.ExecPath(os.Getenv("CHROMIUM")), chromedp.UserDataDir(dir), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(pagePatience))
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); stop() })
	chromedp.ListenTarget(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page threw: %s", ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			t.Errorf("the browser says: %s %s", ev.Entry.Text, ev.Entry.URL)
		}
	})
	return ctx
}

func do(t *testing.T, ctx context.Context, what string, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(ctx, chromedp.Text("body", &text, chromedp.ByQuery))
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
}

// until waits for an expression of the page to be true.
func until(expression string) chromedp.Action {
	return chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(pagePatience), chromedp.WithPollingInterval(50*time.Millisecond))
}

// says waits until the text of the last matching element contains a part.
func says(selector, part string) chromedp.Action {
	return until(fmt.Sprintf(`[...document.querySelectorAll(%q)].at(-1)?.textContent.includes(%q)`, selector, part))
}

// press sends a key event as from a keyboard. A key that the page handles itself inserts
// no text.
func press(key, code string, with ...input.Modifier) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var held input.Modifier
		for _, m := range with {
			held |= m
		}
		k := int64(map[string]int{"Enter": 13, "Escape": 27}[key])
		if err := input.DispatchKeyEvent(input.KeyRawDown).WithKey(key).WithCode(code).WithModifiers(held).WithWindowsVirtualKeyCode(k).Do(ctx); err != nil {
			return err
		}
		return input.DispatchKeyEvent(input.KeyUp).WithKey(key).WithCode(code).WithModifiers(held).WithWindowsVirtualKeyCode(k).Do(ctx)
	})
}

// send types a message, sends it, and checks that the field is then empty and one line high.
func send(text string) chromedp.Action {
	return chromedp.Tasks{
		chromedp.SendKeys("#text", text, chromedp.ByQuery), press("Enter", "Enter"),
		until(`document.querySelector('#text').value === '' && document.querySelector('#text').clientHeight < 60`),
	}
}

// set sets one of the settings; "": the server's default.
func set(id, value string) chromedp.Action {
	return chromedp.Evaluate(fmt.Sprintf(`{ const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event('change')); }`, id, value), nil)
}

// withoutEnd makes the page's next requests ignore the end-of-sequence token, so that a reply
// goes on until it is stopped.
func withoutEnd() chromedp.Action {
	return chromedp.Evaluate(`{
		const plain = window.fetch;
		window.fetch = (path, options) => plain(path, options?.body ? {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})} : options);
		window.fetchPlain = () => { window.fetch = plain; };
	}`, nil)
}

// withEnd undoes withoutEnd.
func withEnd() chromedp.Action { return chromedp.Evaluate(`window.fetchPlain()`, nil) }

func scheme(dark bool) chromedp.Action {
	value := map[bool]string{true: "dark", false: "light"}[dark]
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}})
}

// shoot writes a screenshot to the directory SCREENSHOTS.
func shoot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	do(t, ctx, "screenshot", chromedp.Sleep(400*time.Millisecond), chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// paste pastes a PNG, as base64 has it, into the message field.
func paste(file, data string) chromedp.Action {
	return chromedp.Evaluate(fmt.Sprintf(`{ const d = new DataTransfer(); d.items.add(new File([Uint8Array.from(atob(%q), c => c.charCodeAt(0))], %q, {type: 'image/png'}));
		document.querySelector('#text').dispatchEvent(new ClipboardEvent('paste', {clipboardData: d, bubbles: true, cancelable: true})); } 0`, data, file), nil)
}

// TestPageImage pastes an image on the page of a server whose model takes images. The figures of the reply count
// its tokens in the prompt.
func TestPageImage(t *testing.T) {
	if os.Getenv("CHROMIUM") == "" {
		t.Fatal("CHROMIUM names no browser; `make browser` finds or installs one")
	}
	s := startSighted(t)
	ctx := browse(t)
	const prompt = `+(/([0-9]+) in the prompt/.exec([...document.querySelectorAll('.facts')].at(-1)?.textContent) || [])[1]`
	do(t, ctx, "open", chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.url), says("#phase", "ready"), until(`!document.querySelector('#attach').hidden`), set("max_tokens", "4"))
	do(t, ctx, "a text", send(look), until(prompt+` > 0`))
	var text, both float64
	do(t, ctx, "its tokens", chromedp.Evaluate(prompt, &text), chromedp.Click("#fresh", chromedp.ByQuery))
	do(t, ctx, "an image", paste("red.png", red), until(`document.querySelector('#images img')?.naturalWidth === 60`), send(look), until(prompt+` > 0`), chromedp.Evaluate(prompt, &both))
	if both < text+10 {
		t.Errorf("%v tokens in a prompt with an image, %v without", both, text)
	}
	do(t, ctx, "leave", chromedp.Navigate("about:blank"))
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

const weatherTool = `[{"type":"function","function":{"name":"weather","description":"The weather in a city.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`

// TestPage checks on the page a chat with reasoning, a stop, a reload of the profile, and a
// tool call with its answer; then a phone's screen size and the dark scheme.
func TestPage(t *testing.T) {
	if os.Getenv("CHROMIUM") == "" {
		t.Fatal("CHROMIUM names no browser; `make browser` finds or installs one")
	}
	template, err := filepath.Abs("tools.jinja")
	if err != nil {
		t.Fatal(err)
	}
	const thinks = `reasoning: "qwen3", `
	s, err := startServer(strings.Replace(sharedProfile(template), "parsers: {", "parsers: {"+thinks, 1))
	if err != nil {
		t.Fatal(err)
	}
	ctx := browse(t)
	do(t, ctx, "open", log.Enable(), runtime.Enable(), chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.url),
		says("#phase", "ready"), says("#legend", "KV cache512 MiB"), until(`document.querySelectorAll('#ledger .same').length >= 5 && !document.querySelector('#ledger .off')`),
		says("#reloads", "has not been read again"), until(`document.activeElement.id === 'text'`))
	shoot(t, ctx, "1-welcome")
	do(t, ctx, "a chat that thinks", set("max_tokens", "40"), send("Repeat: a</think>b"), says(".facts", "tokens/s"),
		until(`!document.querySelector('#send').hidden && !document.querySelector('details.reasoning').open && document.querySelector('.reasoning .text').textContent === 'a'`),
		says(".content", "b"))
	shoot(t, ctx, "2-thought")

	do(t, ctx, "the key /", chromedp.Evaluate(`document.activeElement.blur()`, nil), press("/", "Slash"), until(`document.activeElement.id === 'text' && document.activeElement.value === ''`))

	do(t, ctx, "an endless one", set("max_tokens", "3000"), press("n", "KeyN", input.ModifierAlt), until(`!document.querySelector('.message')`),
		withoutEnd(), send(endless), says("#running", "1"), until(`parseFloat(document.querySelector('#kv-text').textContent) > 0 && parseFloat(document.querySelector('#rate').textContent) > 0`))
	shoot(t, ctx, "3-running")
	do(t, ctx, "Esc", press("Escape", "Escape"), says(".facts", "stopped"), says("#running", "0"), says("#kv-text", "0 %"), withEnd())
	for at := time.Now(); metric(t, s.url, "vllm:num_requests_running") != 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(at) > pagePatience {
			t.Fatal("the engine goes on")
		}
	}

	text, err := os.ReadFile(s.profile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.profile, []byte(strings.Replace(string(text), thinks, "", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	do(t, ctx, "a reload", says("#reloads", "applied"), says("#reloads", "parsers.reasoning"))

	do(t, ctx, "a tool", chromedp.Click("#fresh", chromedp.ByQuery), chromedp.Click("#show-settings", chromedp.ByQuery), set("max_tokens", "60"), set("tools", weatherTool))
	shoot(t, ctx, "4-settings")
	do(t, ctx, "its call", press("Escape", "Escape"), send(call), says(".call b", "weather"), says(".call pre", `"city": "Paris"`), says(".facts", "tool_calls"))
	shoot(t, ctx, "5-tool")
	do(t, ctx, "its answer", chromedp.SendKeys(".call input", "sunny, 21 degrees"+kb.Enter, chromedp.ByQuery),
		until(`document.querySelectorAll('.message.assistant').length === 2 && !document.querySelector('#send').hidden`), says(".facts", "tokens/s"))
	shoot(t, ctx, "6-desktop")
	do(t, ctx, "dark", scheme(true))
	shoot(t, ctx, "7-dark")
	do(t, ctx, "a phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), scheme(false),
		until(`document.documentElement.scrollWidth <= innerWidth && getComputedStyle(document.querySelector('aside')).display === 'none'`))
	shoot(t, ctx, "8-phone")
	do(t, ctx, "its panel", chromedp.Click("#show-state", chromedp.ByQuery), until(`getComputedStyle(document.querySelector('aside')).display === 'block'`))
	shoot(t, ctx, "9-phone-server")
	do(t, ctx, "in the dark", scheme(true))
	shoot(t, ctx, "10-phone-dark")
	do(t, ctx, "leave", chromedp.Navigate("about:blank"))
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}
