//go:build browser

package page

import (
	"context"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// shown is a reply with most of what Markdown has.
const shown = "The user wants an overview; a table and a short program will do.</think>## KV cache in three points\n\n" +
	"A **KV cache** keeps the *keys and values* of tokens that were computed, see [the paper](https://arxiv.org/abs/2309.06180):\n\n" +
	"1. prefill fills it, one chunk a step;\n2. decode adds `1` row for each sequence;\n3. pages are freed when the reply ends.\n\n" +
	"| model | layers | KV heads | bytes/token |\n|---|--:|--:|--:|\n| SmolLM2-135M | 30 | 3 | 23,040 |\n| Qwen3-8B | 36 | 8 | 147,456 |\n\n" +
	"> Memory, not arithmetic, bounds how many sequences run.\n\n" +
	"```go\n// PerToken returns the bytes that a token takes in all layers.\nfunc PerToken(layers, heads, dim int) int {\n\tconst size = 2 // bfloat16\n\tif layers == 0 {\n\t\treturn 0\n\t}\n\treturn 2 * layers * heads * dim * size // \"K\" and \"V\"\n}\n```\n\nAsk for more where something is unclear."

// TestScreenshots writes pictures of the page to the directory SCREENSHOTS; make screenshots
// runs it. It is skipped without the variable.
func TestScreenshots(t *testing.T) {
	if os.Getenv("SCREENSHOTS") == "" {
		t.Skip("not run: SCREENSHOTS names no directory; make screenshots does")
	}
	if err := os.MkdirAll(os.Getenv("SCREENSHOTS"), 0o755); err != nil {
		t.Fatal(err)
	}
	replies := map[int]string{
		1: shown, 2: `I have to look that up.</think><tool_call>{"name": "weather", "arguments": {"city": "Zürich"}}</tool_call>`,
		3: "</think>It is **sunny** in Zürich, 21 °C.",
	}
	asked := 0
	s := sighted(t, &chattest.Vision{Most: map[string]int{"image": 4}}, func(engine.Request) chattest.Script {
		asked++
		return chattest.Script{Text: replies[min(asked, 3)]}
	})
	s.status.Store(ptr(strings.TrimSuffix(figures, "}") + `,"limit_mm_per_prompt":{"image":4}}`))
	ctx := browse(t)
	wide, phone := chromedp.EmulateViewport(1360, 850), chromedp.EmulateViewport(380, 800, chromedp.EmulateMobile)
	do(t, ctx, "open", wide, dark(false), chromedp.Navigate(s.url), says("#phase", "ready"))
	both := func(name string) {
		do(t, ctx, "light", dark(false))
		shoot(t, ctx, name+"-light")
		do(t, ctx, "dark", dark(true))
		shoot(t, ctx, name+"-dark")
		do(t, ctx, "light", dark(false))
	}
	both("1-empty")
	do(t, ctx, "Markdown", chromedp.Click("#examples li:nth-child(2) button", chromedp.ByQuery), says(".facts", "stop"),
		chromedp.Evaluate(`document.querySelector('#log').scrollTop = 0`, nil))
	both("2-markdown")
	do(t, ctx, "code", chromedp.Evaluate(`document.querySelector('.reasoning').open = true; document.querySelector('#log').scrollTop = 1e6`, nil))
	both("3-code")
	do(t, ctx, "its top", chromedp.Evaluate(`document.querySelector('#log').scrollTop = 0`, nil))
	shoot(t, ctx, "4-reasoning")
	do(t, ctx, "settings", chromedp.Click("#show-settings", chromedp.ByQuery), chromedp.SendKeys("#tools", tool, chromedp.ByQuery),
		chromedp.Evaluate(`document.activeElement.dispatchEvent(new Event('change'))`, nil))
	shoot(t, ctx, "5-settings")
	do(t, ctx, "a tool", chromedp.KeyEvent(kb.Escape), enter("What is the weather in Zürich?"), says(".facts", "tool_calls"),
		chromedp.Evaluate(`document.querySelector('.call details').open = true; document.querySelector('#log').scrollTop = 1e6`, nil))
	both("6-tool")
	do(t, ctx, "its answer", chromedp.SendKeys(".call input", `{"sky": "clear", "celsius": 21}`+kb.Enter, chromedp.ByQuery), says(".facts", "stop"), says(".content", "sunny"))
	do(t, ctx, "the editor", chromedp.Evaluate(`[...document.querySelectorAll('.edit')].at(-1).click(); document.querySelector('#log').scrollTop = 1e6`, nil))
	shoot(t, ctx, "7-edit")
	do(t, ctx, "no editor", chromedp.KeyEvent(kb.Escape), chromedp.Click("#show-help", chromedp.ByQuery))
	shoot(t, ctx, "8-keys")
	do(t, ctx, "no list of keys", chromedp.Click("#close-help", chromedp.ByQuery), phone, dark(false), until(`innerWidth === 380`),
		chromedp.Evaluate(`document.querySelector('.reasoning').open = false; document.querySelector('#log').scrollTop = 0`, nil))
	both("9-phone")
	do(t, ctx, "its conversations", chromedp.Click("#show-chats", chromedp.ByQuery))
	shoot(t, ctx, "10-phone-conversations")
	do(t, ctx, "its figures", chromedp.Click("#show-state", chromedp.ByQuery))
	shoot(t, ctx, "11-phone-server")
	do(t, ctx, "a new chat", chromedp.Click("#show-state", chromedp.ByQuery), chromedp.Click("#fresh", chromedp.ByQuery))
	shoot(t, ctx, "12-phone-empty")
	do(t, ctx, "images", wide, dark(false), until(`innerWidth === 1360`), chromedp.Evaluate(`document.querySelector('#key').dispatchEvent(new Event('change'))`, nil), until(`!document.querySelector('#attach').hidden`),
		paste("sunset.png", scene(t, 900, 600), ""), paste("a portrait with a rather long name of its file.png", scene(t, 300, 700), ""), pictured("#images", 2), chromedp.SendKeys("#text", "What differs between these two pictures?", chromedp.ByQuery))
	both("14-images")
	do(t, ctx, "no image", paste("notes.txt", []byte("a text"), ""), until(`!document.querySelector('#refused').hidden`))
	shoot(t, ctx, "15-images-refused")
	do(t, ctx, "a drop", chromedp.Evaluate(`document.body.classList.add('dropping')`, nil))
	both("16-images-drop")
	do(t, ctx, "sent", chromedp.Evaluate(`document.body.classList.remove('dropping')`, nil), press("Enter", "Enter"), says(".content", "sunny"), pictured(".user .pictures", 2))
	both("17-images-sent")
	do(t, ctx, "edit", chromedp.Evaluate(`document.querySelector('.user .edit').click()`, nil), pictured(".editor", 2))
	shoot(t, ctx, "18-images-edit")
	do(t, ctx, "one", press("Escape", "Escape"), chromedp.Click(".user .picture", chromedp.ByQuery), until(`document.querySelector('#picture').open`))
	both("19-images-one")
	do(t, ctx, "a phone", press("Escape", "Escape"), phone, until(`innerWidth === 380`), chromedp.Evaluate(`document.querySelector('#log').scrollTop = 0`, nil), paste("sunset.png", scene(t, 900, 600), ""), pictured("#images", 1))
	both("20-images-phone")
	do(t, ctx, "a new chat", chromedp.Click("#images .remove", chromedp.ByQuery), chromedp.Click("#fresh", chromedp.ByQuery))
	do(t, ctx, "no server", wide, dark(false), until(`innerWidth === 1360`), chromedp.Evaluate(`1`, nil))
	s.close()
	do(t, ctx, "an error", enter("Are you there?"), says(".facts.bad", "does not answer"), says("#phase", "no answer"))
	both("13-error")
}

// scene returns a PNG of a sun over the sea.
func scene(t *testing.T, width, height int) []byte {
	return drawn(t, width, height, func(x, y int) color.Color {
		dx, dy, low := x-width/2, y-height/2, uint8(y*120/height)
		switch {
		case y > height*2/3:
			return color.RGBA{20 + low/3, 60 + low/2, 120 + low/2, 255}
		case dx*dx+dy*dy < width*width/64:
			return color.RGBA{255, 220, 120, 255}
		}
		return color.RGBA{250, 150 + low/2, 90 + low, 255}
	})
}

// shoot writes a screenshot to the directory SCREENSHOTS.
func shoot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	do(t, ctx, "screenshot", chromedp.Sleep(300*time.Millisecond), chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

func dark(yes bool) chromedp.Action {
	value := map[bool]string{true: "dark", false: "light"}[yes]
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}})
}

// figures is a reply of GET /admin/status with much to show.
const figures = `{"phase":"ready","models":["smollm2","smollm2-135m"],"plan":{"model":"/models/SmolLM2-135M-Instruct.Q4_1.gguf","backend":"cpu","device":"2 cores, avx512, 15.6 GiB","total_bytes":16750372454,
"segments":[{"name":"weights","bytes":104857600,"what":"weights"},{"name":"KV cache","bytes":536870912,"what":"kv"},{"name":"scratch","bytes":73400320,"what":"activations"},{"name":"process","bytes":262144000,"what":"text, stacks"},{"name":"free","bytes":15773099622,"what":"free"}],
"lengths":[{"tokens":512,"sequences":45,"running":32},{"tokens":2048,"sequences":11,"running":11},{"tokens":8192,"sequences":2,"running":2}]},
"ledger":[{"item":"weights","plan_bytes":104857600,"actual_bytes":104857600},{"item":"kv","plan_bytes":536870912,"actual_bytes":536870912},{"item":"scratch","plan_bytes":73400320,"actual_bytes":73400320}],
"now":{"running":3,"waiting":1,"kv_used":0.37,"generated":10},
"sampling":{"temperature":0.2,"top_p":0.9,"top_k":0,"min_p":0,"repetition_penalty":1.1,"max_model_len":8192},
"pending":{"since":"2026-01-02T03:04:05Z","changes":["engine.kvCache.memory: 512 MiB → 1 GiB (structural)"]},
"reloads":[{"at":"2026-01-02T03:04:05Z","trigger":"file","class":"structural","outcome":"reported","pending":["engine.kvCache.memory: 512 MiB → 1 GiB (structural)"]},
{"at":"2026-01-02T02:04:05Z","trigger":"file","class":"none","outcome":"rejected","error":"smollm2.cue:7: engine.maxNumSeqs: invalid value 0 (out of bound >=1)"},
{"at":"2026-01-02T01:04:05Z","trigger":"file","class":"live","outcome":"applied","changes":["serve.accessLog: true → false (live)"]}]}`
