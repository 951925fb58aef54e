package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake is a server whose replies a test writes.
type fake struct {
	requests []map[string]any
	reply    func(w http.ResponseWriter, n int)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"data":[{"id":"tiny","max_model_len":64}]}`)
		return
	}
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, "no", http.StatusTeapot)
		return
	}
	f.requests = append(f.requests, body)
	f.reply(w, len(f.requests))
}

// stream writes records and the end of a stream.
func stream(records ...string) func(http.ResponseWriter, int) {
	return func(w http.ResponseWriter, _ int) {
		for _, r := range records {
			fmt.Fprintf(w, "data: %s\n\n", r)
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

const (
	hello = `{"choices":[{"delta":{"content":"hel"}}]}`
	world = `{"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}`
	usage = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}`
)

// typed answers the lines of input and returns what was printed.
func typed(t *testing.T, f *fake, interactive bool, input string) (out, errs string, err error) {
	t.Helper()
	s := httptest.NewServer(f)
	defer s.Close()
	client, err := NewClient(s.URL+"/v1/", "")
	if err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	c := New(Config{Client: client, Model: Model{"tiny", 64}, In: NewLines(strings.NewReader(input), &o, nil), Out: &o, Err: &e, Interactive: interactive, Terminal: interactive})
	err = c.Run(context.Background())
	return o.String(), e.String(), err
}

// TestConversation checks the messages and settings of requests, and the printed replies.
func TestConversation(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "chat.json")
	f := &fake{reply: stream(hello, world, usage)}
	out, errs, err := typed(t, f, false, "one\n/set temperature 0.5\n/system be short\n\"\"\"two\nlines\"\"\"\n/tokens\n/save "+file+"\n/clear\nthree\n/load "+file+"\n/retry\n")
	if err != nil || errs != "" {
		t.Fatal(err, errs)
	}
	if want := "hello\nhello\nconversation: 9 tokens of 64 (max_model_len)\nlast reply: prompt 7 tokens"; !strings.HasPrefix(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
	const system = `{"content":"be short","role":"system"}`
	for i, want := range []string{
		`[{"content":"one","role":"user"}]`,
		`[` + system + `,{"content":"one","role":"user"},{"content":"hello","role":"assistant"},{"content":"two\nlines","role":"user"}]`,
		`[` + system + `,{"content":"three","role":"user"}]`,
		`[` + system + `,{"content":"one","role":"user"},{"content":"hello","role":"assistant"},{"content":"two\nlines","role":"user"}]`,
	} {
		if got, _ := json.Marshal(f.requests[i]["messages"]); string(got) != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
	if f.requests[0]["temperature"] != nil || f.requests[1]["temperature"] != 0.5 || f.requests[1]["model"] != "tiny" {
		t.Errorf("%v", f.requests)
	}
}

// TestFencedSlash checks that a text between fences is a message, also if it begins with "/".
func TestFencedSlash(t *testing.T) {
	f := &fake{reply: stream(hello, usage)}
	if _, errs, err := typed(t, f, false, "\"\"\"/etc/passwd is what?\"\"\"\n"); err != nil || errs != "" || len(f.requests) != 1 {
		t.Errorf("%v, %q, %d requests; want one", err, errs, len(f.requests))
	}
}

// TestRefusals checks the errors of commands, and that a file is never overwritten without --force.
func TestRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"/hlep":              "did you mean /help?",
		"/etc/passwd is":     "write a text that begins with /",
		"/image":             "needs the name of a file",
		"/image cat.png":     "cat.png: no such file or directory",
		"/image " + file:     "kept: no image, its content is text/plain",
		"/set temprature 1":  "did you mean temperature?",
		"/set temperature 9": "a number from 0 to 2, not 9",
		"/set top_p NaN":     "a number from 0 to 1",
		"/set seed 1.5":      "a whole number",
		"/save " + file:      "is there already",
		"/load " + file:      "is no saved conversation",
		"/retry":             "there is no message",
		"/model other":       "has no model other; it has tiny",
		"/bye now":           "takes no words",
		"/image .":           ".: is a directory",
	} {
		_, errs, err := typed(t, &fake{}, false, line+"\n")
		if err == nil || !strings.HasPrefix(errs, "vapp: line 1: ") || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %q, %v, want %q", line, errs, err, want)
		}
	}
	if text, _ := os.ReadFile(file); string(text) != "mine" {
		t.Errorf("the file has %q", text)
	}
	if _, errs, err := typed(t, &fake{}, false, "/save --force "+file+"\n"); err != nil {
		t.Error(errs, err)
	}
}

// TestHostile checks what servers that do not answer well lead to: an error of one line, without
// control characters, and a message that /retry sends again.
func TestHostile(t *testing.T) {
	status := func(code int, text string) func(http.ResponseWriter, int) {
		return func(w http.ResponseWriter, _ int) { w.WriteHeader(code); fmt.Fprint(w, text) }
	}
	for want, reply := range map[string]func(http.ResponseWriter, int){
		"give the server's key as --api-key": status(401, `{"error":{"message":"no"}}`),
		"not found (HTTP 404): no model x":   status(404, `{"error":{"message":"no model x"}}`),
		"is not ready (HTTP 503): loading":   status(503, `{"phase":"loading"}`),
		"HTTP 500): \uFFFD[31m":              status(500, "\x1b[31m"),
		"no event stream: <html>":            status(200, "<html>\n"),
		"sends a broken stream: {":           stream("{"),
		"a record of more than":              func(w http.ResponseWriter, _ int) { fmt.Fprint(w, "data: ", strings.Repeat("x", 5<<20)) },
		"the server reports: out of pages":   stream(`{"error":{"message":"out of pages"}}`),
		"it ended the reply early":           func(w http.ResponseWriter, _ int) { fmt.Fprintf(w, "data: %s\n\n", usage) },
		"sends an endless reply: more than": func(w http.ResponseWriter, _ int) {
			r := `data: {"choices":[{"delta":{"reasoning":"` + strings.Repeat("x", 3<<20) + `"}}]}` + "\n\n"
			for range 20 {
				fmt.Fprint(w, r)
			}
		},
	} {
		f := &fake{reply: func(w http.ResponseWriter, n int) {
			if n == 1 {
				reply(w, n)
				return
			}
			stream(hello, world)(w, n)
		}}
		out, errs, err := typed(t, f, false, "question\n/retry\n")
		if err == nil || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 || strings.Contains(errs, "\x1b") {
			t.Errorf("%q, %v, want %q", errs, err, want)
		}
		if len(f.requests) != 2 || fmt.Sprint(f.requests[0]["messages"]) != fmt.Sprint(f.requests[1]["messages"]) || !strings.HasSuffix(out, "hello\n") {
			t.Errorf("%s: after /retry: %v %q", want, f.requests, out)
		}
	}
}

// TestTerminal checks that reasoning comes before the reply, and that escape sequences of a model do
// not reach a terminal.
func TestTerminal(t *testing.T) {
	f := &fake{reply: stream(`{"choices":[{"delta":{"reasoning_content":"hm"}}]}`, `{"choices":[{"delta":{"content":"\u001b]0;x\u0007é\t漢\u202e"}}]}`, world)}
	out, _, err := typed(t, f, true, "q\n")
	if want := ">>> hm\n\uFFFD]0;x\uFFFDé\t漢\uFFFDlo\n"; err != nil || !strings.Contains(out, want) {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}

// TestInterrupt checks that an interrupt during a reply ends the request, keeps the text, and that
// two at the prompt leave.
func TestInterrupt(t *testing.T) {
	interrupts, gone := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "data: %s\n\n", hello)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer s.Close()
	client, err := NewClient(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	out := watched{seen: "hel", then: func() { interrupts <- struct{}{} }}
	c := New(Config{Client: client, In: &keys{"question", "\x03draft", "\x03", "\x03"}, Out: &out, Interactive: true, Terminal: true, Interrupts: interrupts})
	if err := c.Run(context.Background()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-gone
	if !strings.HasSuffix(out.String(), "hel\n(stopped)\nCtrl-C again, Ctrl-D or /bye leaves.\n") || len(c.chat.messages) != 2 {
		t.Errorf("%q %v", out.String(), c.chat.messages)
	}
}

// watched is a buffer that calls then when a text has been written that is seen.
type watched struct {
	bytes.Buffer
	seen string
	then func()
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if string(b) == w.seen {
		w.then()
	}
	return n, err
}

func (w *watched) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// keys is an Input of lines; one that begins with Ctrl-C was interrupted.
type keys []string

func (k *keys) Read(string) (string, error) {
	line := (*k)[0]
	*k = (*k)[1:]
	if text, ok := strings.CutPrefix(line, "\x03"); ok {
		return text, ErrInterrupt
	}
	return line, nil
}

// TestHistory checks the bounds, the order and the mode of the history file.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "history")
	h := OpenHistory(path)
	for _, line := range []string{"a\nb", "a\nb", " ", strings.Repeat("x", maxEntry+1), "c"} {
		if _, err := h.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	h = OpenHistory(path)
	if got := fmt.Sprintf("%q", h.lines); got != `["a\nb" "c"]` {
		t.Error(got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	h.path = ""
	for i := range maxHistory + 5 {
		h.Write(fmt.Sprint(i))
	}
	if last, _ := h.GetLine(h.Len() - 1); h.Len() != maxHistory || last != fmt.Sprint(maxHistory+4) {
		t.Error(h.Len(), last)
	}
}

// TestAddress checks which arguments are servers, and how their addresses are read.
func TestAddress(t *testing.T) {
	for arg, want := range map[string]string{
		"http://x:1/v1/": "http://x:1", "localhost:8000": "http://localhost:8000", "https://a/b": "https://a/b", "127.0.0.1": "http://127.0.0.1",
		"http://u:p@x": "http://u:xxxxx@x", "ftp://x": "", "http://": "", "p.cue": "-", "org/name": "-", "models/x.gguf": "-",
	} {
		if IsURL(arg) != (want != "-") {
			t.Errorf("%s: IsURL %v", arg, IsURL(arg))
		}
		if c, err := NewClient(arg, ""); want != "-" && (err == nil) != (want != "") || err == nil && want != "-" && c.URL() != want {
			t.Errorf("%s: %v %v, want %s", arg, c, err, want)
		}
	}
}
