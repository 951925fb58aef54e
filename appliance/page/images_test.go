//go:build browser

package page

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// drawn returns a PNG with a colour for each point.
func drawn(t *testing.T, width, height int, at func(x, y int) color.Color) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.Set(x, y, at(x, y))
		}
	}
	return encoded(t, m)
}

func encoded(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.NoCompression}).Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func plain(t *testing.T, c color.Color) []byte {
	return drawn(t, 60, 40, func(int, int) color.Color { return c })
}

// noise returns a PNG that does not compress: four bytes a pixel.
func noise(t *testing.T, side int) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, side, side))
	_, _ = rand.NewChaCha8([32]byte{}).Read(m.Pix) // it returns no error
	return encoded(t, m)
}

func dataURL(b []byte) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b)
}

// drop drops files of this machine on the middle of the page, as a mouse does.
func drop(files ...string) chromedp.Action {
	data := &input.DragData{Items: []*input.DragDataItem{}, Files: files, DragOperationsMask: 1}
	return chromedp.Tasks{
		input.DispatchDragEvent(input.DragEnter, 600, 300, data), input.DispatchDragEvent(input.DragOver, 600, 300, data),
		until(`document.body.classList.contains('dropping')`), input.DispatchDragEvent(input.Drop, 600, 300, data), until(`!document.body.classList.contains('dropping')`),
	}
}

// paste pastes a file with a name, and a text where it is not "".
func paste(name string, b []byte, text string) chromedp.Action {
	return chromedp.Evaluate(fmt.Sprintf(`{ const d = new DataTransfer(); d.items.add(new File([Uint8Array.from(atob(%s), c => c.charCodeAt(0))], %s, {type: 'image/png'}));
		if (%s) d.setData('text/plain', %s); document.querySelector('#text').dispatchEvent(new ClipboardEvent('paste', {clipboardData: d, bubbles: true, cancelable: true})); } 0`,
		quoted(base64.StdEncoding.EncodeToString(b)), quoted(name), quoted(text), quoted(text)), nil)
}

// pictured waits until n images of a list are shown with their pixels, and no more elements.
func pictured(list string, n int) chromedp.Action {
	return until(fmt.Sprintf(`(l => l.length === %d && l.every(i => i.complete && i.naturalWidth > 0))([...document.querySelectorAll(%s)])`, n, quoted(list+" img")))
}

// seen starts a server whose model takes two images, and writes files for it.
func seen(t *testing.T, files map[string][]byte) (*site, *chattest.Vision, func(string) string) {
	t.Helper()
	v := &chattest.Vision{Most: map[string]int{"image": 2}}
	s := sighted(t, v, func(engine.Request) chattest.Script { return chattest.Script{Text: "</think>I see."} })
	s.status.Store(ptr(strings.TrimSuffix(fixed, "}") + `,"limit_mm_per_prompt":{"image":2}}`))
	s.fast.Store(true)
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s, v, func(name string) string { return filepath.Join(dir, name) }
}

// TestImages drops, pastes and chooses images, removes one, sends them, keeps them over a reload of
// the page, edits their message, and has the page refuse what cannot be sent.
func TestImages(t *testing.T) {
	red, blue, green := plain(t, color.RGBA{200, 10, 30, 255}), plain(t, color.RGBA{10, 30, 220, 255}), plain(t, color.RGBA{10, 180, 60, 255})
	s, v, file := seen(t, map[string][]byte{"red.png": red, "green.png": green, "notes.txt": []byte("a text"), "broken.png": red[:40], "noise.png": noise(t, 100), "scan.tiff": []byte("II*\x00\x08\x00\x00\x00\x00\x00")})
	ctx := browse(t)
	refused := func(text string) chromedp.Action {
		return until(`!document.querySelector('#refused').hidden && document.querySelector('#refused').textContent === ` + quoted(text))
	}
	const full = "At most 2 images fit in a conversation with this model."
	do(t, ctx, "a drop", chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.url), says("#phase", "ready"), until(`!document.querySelector('#attach').hidden`), drop(file("red.png")), pictured("#images", 1))
	do(t, ctx, "no image", drop(file("notes.txt")), refused("“notes.txt” is no image: PNG, JPEG, WebP, GIF, BMP and TIFF are taken."), drop(file("broken.png")), refused("“broken.png” is damaged or too large: this browser cannot read it."), pictured("#images", 1))
	do(t, ctx, "a paste", paste("", blue, "a text"), paste("image.png", blue, ""), pictured("#images", 2), until(`document.querySelector('#refused').hidden`))
	do(t, ctx, "too many", paste("x.png", green, ""), refused(full), pictured("#images", 2))
	do(t, ctx, "another", chromedp.Click("#images .remove", chromedp.ByQuery), pictured("#images", 1), until(`document.querySelector('#refused').hidden && document.activeElement.className === 'remove'`),
		chromedp.SetUploadFiles("#file", []string{file("green.png")}, chromedp.ByQuery), pictured("#images", 2))
	do(t, ctx, "ask", enter("what?"), says(".facts", "stop"), pictured(".user .pictures", 2), until(`document.querySelector('#images').hidden`))
	sent := func(want ...[]byte) {
		t.Helper()
		urls := []string{}
		for _, b := range want {
			urls = append(urls, dataURL(b))
		}
		got := map[string]bool{}
		for _, r := range v.Loaded() {
			got[r.URL] = true
		}
		for i, u := range urls {
			if !got[u] {
				t.Errorf("image %d was not sent as its file has it", i)
			}
		}
		if items := v.Attached(); len(items[len(items)-1]) != len(want) {
			t.Errorf("%d images were sent, want %d", len(items[len(items)-1]), len(want))
		}
	}
	sent(blue, green)
	do(t, ctx, "no more", paste("x.png", red, ""), refused(full), until(`document.querySelector('#images').hidden`))
	do(t, ctx, "a larger picture", chromedp.Click(".user .picture", chromedp.ByQuery), until(`document.querySelector('#picture').open && document.querySelector('#picture-image').naturalWidth === 60`),
		press("Escape", "Escape"), until(`!document.querySelector('#picture').open`))
	do(t, ctx, "F5", chromedp.Reload(), says("#phase", "ready"), pictured(".user .pictures", 2), enter("and?"), until(`document.querySelectorAll('.content').length === 2`), says(".facts", "stop"))
	sent(blue, green)
	do(t, ctx, "edit", chromedp.Evaluate(`document.querySelector('.edit').click()`, nil), pictured(".editor .pictures", 2), chromedp.Click(".editor .remove", chromedp.ByQuery), pictured(".editor .pictures", 1),
		press("Enter", "Enter"), until(`document.querySelectorAll('.content').length === 1 && !document.querySelector('#send').hidden`), says(".content", "I see."), pictured(".user .pictures", 1))
	sent(green)
	do(t, ctx, "an image alone", chromedp.Click("#fresh", chromedp.ByQuery), paste("<b>red.png", red, ""), pictured("#images", 1), press("Enter", "Enter"), says(".content", "I see."), says("#list [aria-current]", "<b>red.png"), until(`!document.querySelector('.user .text')`))
	do(t, ctx, "TIFF, which this browser cannot show", drop(file("scan.tiff")), says("#images .picture", "scan.tiff"), until(`!document.querySelector('#images img')`))
	s.status.Store(ptr(fixed))
	const refresh = `document.querySelector('#key').dispatchEvent(new Event('change'))` // asks the server at once
	do(t, ctx, "a model of text", chromedp.Evaluate(refresh, nil), until(`document.querySelector('#attach').hidden`), enter("and this?"), says(".facts.bad", "The served model takes no images."),
		chromedp.Click("#fresh", chromedp.ByQuery), chromedp.Click("#images .remove", chromedp.ByQuery), drop(file("red.png")), refused("The served model takes no images."))
	asked := len(s.Requests())
	do(t, ctx, "text", enter("go"), says(".content", "I see."))
	if n := len(s.Requests()); n != asked+1 {
		t.Errorf("%d requests, want %d: what the page refuses is not sent", n, asked+1)
	}
	s.status.Store(ptr(strings.TrimSuffix(fixed, "}") + `,"limit_mm_per_prompt":{"image":2},"max_body_bytes":15000}`))
	do(t, ctx, "more than a body may have", chromedp.Evaluate(refresh, nil), until(`!document.querySelector('#attach').hidden`), drop(file("noise.png")),
		says("#refused", "“noise.png” is too large: a request would have "), says("#refused", "and this server takes at most 14.6 KiB (serve.limits.maxBodyBytes)."), until(`document.querySelector('#images').hidden`))
	do(t, ctx, "with its text", drop(file("red.png")), pictured("#images", 1), chromedp.Evaluate(`document.querySelector('#text').value = 'x'.repeat(9000); document.querySelector('#text').focus()`, nil), press("Enter", "Enter"),
		says(".facts.bad", "It is not sent: a request would have "))
	if n := len(s.Requests()); n != asked+1 {
		t.Errorf("%d requests, want %d: what a body has no room for is not sent", n, asked+1)
	}
}

// TestLargeImages checks that a large file is sent as a smaller copy, and that large images leave room
// in the storage: they are kept as smaller copies, and the oldest of many by their names.
func TestLargeImages(t *testing.T) {
	s, _, file := seen(t, map[string][]byte{"large.png": noise(t, 900), "middle.png": noise(t, 700)})
	s.status.Store(ptr(strings.TrimSuffix(fixed, "}") + `,"limit_mm_per_prompt":{"image":20}}`))
	bodies := make(chan []byte, 9)
	reply := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies <- b
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"seen\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	})
	s.answer.Store(&reply)
	urls := func() (out []string) {
		var body struct {
			Messages []struct{ Content json.RawMessage }
		}
		if err := json.Unmarshal(<-bodies, &body); err != nil {
			t.Fatal(err)
		}
		for _, m := range body.Messages {
			var parts []struct {
				URL struct{ URL string } `json:"image_url"`
			}
			if json.Unmarshal(m.Content, &parts) == nil {
				for _, p := range parts {
					if p.URL.URL != "" {
						out = append(out, p.URL.URL)
					}
				}
			}
		}
		return out
	}
	ctx := browse(t)
	do(t, ctx, "send", chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.url), says("#phase", "ready"), drop(file("large.png"), file("middle.png")), pictured("#images", 2), says("#images .note", "smaller copy"),
		enter("go"), says(".content", "seen"), says("#chats-note", "large images as smaller copies"))
	if u := urls(); len(u) != 2 || !strings.HasPrefix(u[0], "data:image/jpeg;base64,") || u[1] != dataURL(noise(t, 700)) {
		t.Errorf("%d images were sent, or the large one as its file, or the other not", len(u))
	}
	do(t, ctx, "F5", chromedp.Reload(), says("#phase", "ready"), pictured(".user .pictures", 2), until(`document.querySelectorAll('.user .note').length === 2`), enter("again"), until(`document.querySelectorAll('.content').length === 2`), says(".facts", "stop"))
	if u := urls(); len(u) != 2 || len(u[0]) > 600_000 || len(u[1]) > 600_000 {
		t.Errorf("%d images were sent, or not their copies", len(u))
	}
	many := []string{}
	for range 5 {
		many = append(many, file("middle.png"))
	}
	do(t, ctx, "many", chromedp.Click("#fresh", chromedp.ByQuery), drop(many...), pictured("#images", 5), enter("go"), says(".content", "seen"))
	if u := urls(); len(u) != 5 {
		t.Errorf("%d images were sent, want 5", len(u))
	}
	var used int
	do(t, ctx, "F5", chromedp.Reload(), says("#phase", "ready"), says(".content", "seen"), until(`document.querySelector('.user .note').textContent === 'not kept, not sent' && document.querySelectorAll('.user img').length > 0 && document.querySelectorAll('#list li').length === 2`),
		chromedp.Evaluate(`Object.values(localStorage).reduce((n, v) => n + v.length, 0)`, &used))
	if used > 4_000_000 {
		t.Errorf("%d characters are stored", used)
	}
}
