package api

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
	"vapp.dev/internal/goldentest"
)

// rule is one row of the conformance tests: the effect of a field on a route.
type rule struct {
	section string // of the reference
	route   string // method and path
	field   string
	rule    string
	body    string // JSON; M stands for messages with one user message, T for a tool
	header  string // "Name: value", several with | between
	knobs   string // settings, as in the goldens, separated by |
	say     string // what the model says; "": Hello!
	status  int
	has     string // required parts of headers and reply, separated by ¦
	lacks   string
}

const (
	chatPath, textPath = "POST /v1/chat/completions", "POST /v1/completions"
	hi                 = `"messages":[{"role":"user","content":"hi"}]`
	oneTool            = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`
)

// answer sends a rule's request and returns the reply with its headers.
func (r rule) answer(t *testing.T) (int, string) {
	m, set := &chattest.Model{}, testSettings()
	said := "Hello!"
	if r.say != "" {
		said = r.say
	}
	m.Say = func(engine.Request, int) chattest.Script { return chattest.Script{Text: said} }
	for k := range strings.SplitSeq(r.knobs, "|") {
		if k != "" && knobs[k] == nil {
			t.Fatalf("no setting %q", k)
		} else if k != "" {
			knobs[k](&set, m)
		}
	}
	method, path, _ := strings.Cut(r.route, " ")
	body := strings.NewReplacer("{M", "{"+hi, ",T", ","+oneTool).Replace(r.body)
	q := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	for h := range strings.SplitSeq(r.header, "|") {
		if name, value, ok := strings.Cut(h, ": "); ok {
			q.Header.Set(name, value)
		} else if h != "" {
			q.Header.Del(h)
		}
	}
	w := httptest.NewRecorder()
	testServer(m, set).Handler().ServeHTTP(w, q)
	var out bytes.Buffer
	_ = w.Header().Write(&out) // no error: out is a buffer
	return w.Code, out.String() + "\n" + w.Body.String()
}

// sections lists the sections of the reference with their titles.
var sections = []struct{ number, title string }{
	{"1", "Routes"}, {"2.1", "Requests"}, {"2.2", "Headers"}, {"2.3", "Authentication"}, {"2.4", "Error object"}, {"2.5", "Load shedding and scaling"},
	{"2.6", "Usage object"}, {"3.1", "Chat: request fields"}, {"3.2", "Chat: messages"}, {"3.3", "Chat: reply"}, {"3.4", "Chat: stream"},
	{"3.5", "Defaults and limits"}, {"4", "Completions"}, {"5.1", "Sampling: validation"}, {"5.2", "Sampling: order"}, {"5.3", "Stopping"},
	{"5.4", "Defaults of the model"}, {"6.1", "Tools: request rules"}, {"6.2", "Tools: choices"}, {"6.3", "Tools: stream"}, {"6.4", "Tools: finish_reason"},
	{"7", "Structured outputs"}, {"8", "Tokens"}, {"9", "Information"}, {"10", "Responses"}, {"11", "Anthropic Messages"}, {"12", "Pooling"},
	{"13", "Raw generation and render"}, {"14", "Batch chat"}, {"15", "Audio"}, {"16", "Scaling"}, {"17", "Invocations"}, {"18", "LoRA adapters"},
}

// TestConformance checks each rule of the reference.
func TestConformance(t *testing.T) {
	known := map[string]bool{}
	for _, s := range sections {
		known[s.number] = true
		t.Run("section "+s.number+" "+s.title, func(t *testing.T) {
			for _, r := range rules {
				if r.section == s.number {
					r.check(t)
				}
			}
		})
	}
	for _, r := range rules {
		if !known[r.section] {
			t.Errorf("no section %s: %s", r.section, r.rule)
		}
	}
}

func (r rule) check(t *testing.T) {
	status, text := r.answer(t)
	name := fmt.Sprintf("%s, %s: %s", r.route, r.field, r.rule)
	if status != r.status {
		t.Errorf("%s: status %d, want %d\n%s", name, status, r.status, text)
		return
	}
	for part := range strings.SplitSeq(r.has, "¦") {
		if !strings.Contains(text, part) {
			t.Errorf("%s: no %q in\n%s", name, part, text)
		}
	}
	for part := range strings.SplitSeq(r.lacks, "¦") {
		if part != "" && strings.Contains(text, part) {
			t.Errorf("%s: %q in\n%s", name, part, text)
		}
	}
}

// TestCoverage compares docs/api-coverage.md with the rows of the tests.
func TestCoverage(t *testing.T) {
	goldentest.ComparePage(t, "../..", "api-coverage.md", coverage())
}

// rowsBySection returns the rows of all tables by section.
func rowsBySection() map[string][][3]string {
	out := map[string][][3]string{}
	for _, r := range rules {
		out[r.section] = append(out[r.section], [3]string{r.route, r.field, r.rule})
	}
	for _, f := range fieldRules {
		route := map[string]string{"ct": "chat and completions", "c": chatPath, "t": textPath}[f.routes]
		out[f.section] = append(out[f.section], [3]string{route, f.field, f.rule})
	}
	for group, list := range unsupportedFields {
		section, is := strings.CutPrefix(group, "rules of section ")
		if !is {
			section = "2.4"
		}
		for _, f := range list {
			route := map[byte]string{'c': chatPath, 't': textPath}[f.body[0]]
			out[section] = append(out[section], [3]string{route, f.param, fmt.Sprintf("%d: %s", f.status, f.text)})
		}
	}
	return out
}
