//go:build clients

package clients

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"vapp.dev/internal/goldentest"
)

// features lists what each client is tested for: the name in a test, and the name in the
// table of docs/guide/clients.md.
var features = []struct{ name, label string }{
	{"chat", "chat"},
	{"stream", "streaming, with usage"},
	{"turns", "several turns, system prompt, content parts"},
	{"logprobs", "logprobs"},
	{"stop", "stop sequences"},
	{"seed-and-n", "seed, several choices"},
	{"completions", "text completions"},
	{"models", "list of models"},
	{"token-counting", "counting tokens"},
	{"tools", "tools, and the loop of an agent"},
	{"tools-stream", "tools, streamed"},
	{"forced", "tools, required and named"},
	{"schema", "structured output"},
	{"responses", "responses: plain, events, tools"},
	{"images", "images, also in a tool's result; their errors"},
	{"errors", "errors of their own types"},
	{"key", "a wrong key, the right key"},
	{"limits", "429, retried after Retry-After"},
	{"cancel", "leaving: the engine aborts"},
}

// clients are the columns of the table. run runs a client and returns its result for each
// feature; nil: success.
var clients = []struct {
	name string
	run  func(t *testing.T) map[string]error
}{
	{"openai Python", python("openai")},
	{"openai Node", node("openai")},
	{"openai Go", inGo(openaiChecks)},
	{"anthropic Python", python("anthropic")},
	{"anthropic Go", inGo(anthropicChecks)},
	{"LangChain", python("langchain")},
	{"litellm", python("litellm")},
}

// check tests one feature with a Go client.
type check struct {
	feature string
	run     func(t *testing.T)
}

// inGo returns a client that runs checks in Go.
func inGo(checks []check) func(t *testing.T) map[string]error {
	return func(t *testing.T) map[string]error {
		out := map[string]error{}
		for _, c := range checks {
			if t.Run(c.feature, c.run) {
				out[c.feature] = nil
			} else {
				out[c.feature] = fmt.Errorf("failed")
			}
		}
		return out
	}
}

// TestClients runs every client against the server, and compares the results with the
// table in docs/guide/clients.md.
func TestClients(t *testing.T) {
	var err error
	if guarded, err = startServer(guardedText); err != nil {
		t.Fatal(err)
	}
	sighted = startSighted(t)
	done := map[string]map[string]error{}
	for _, c := range clients {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			done[c.name] = c.run(t)
			for feature, err := range done[c.name] {
				if err != nil {
					t.Errorf("%s: %v", feature, err)
				}
				if !known(feature) {
					t.Errorf("no row for %q", feature)
				}
			}
			if len(done[c.name]) < 10 {
				t.Errorf("only %d features", len(done[c.name]))
			}
		})
	}
	for _, s := range []*server{guarded, sighted} {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}
	if !t.Failed() {
		table(t, done)
	}
}

func known(feature string) bool {
	for _, f := range features {
		if f.name == feature {
			return true
		}
	}
	return false
}

// table makes the table client × feature, and compares it with the one in the docs.
func table(t *testing.T, done map[string]map[string]error) {
	t.Helper()
	var b strings.Builder
	b.WriteString("|  |")
	for _, c := range clients {
		if len(done[c.name]) == 0 {
			t.Skipf("%s did not run", c.name)
		}
		b.WriteString(" " + c.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(clients)) + "\n")
	for _, f := range features {
		b.WriteString("| " + f.label + " |")
		for _, c := range clients {
			mark := "–"
			if err, is := done[c.name][f.name]; is && err == nil {
				mark = "✓"
			}
			b.WriteString(" " + mark + " |")
		}
		b.WriteString("\n")
	}
	t.Log("\n" + b.String())
	const path = "../../docs/guide/clients.md"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := bytes.Cut(doc, []byte("<!-- table -->\n"))
	old, after, found := bytes.Cut(rest, []byte("<!-- end -->"))
	switch {
	case !found:
		t.Errorf("%s has no table", path)
	case *goldentest.Update:
		text := fmt.Sprintf("%s<!-- table -->\n%s<!-- end -->%s", before, b.String(), after)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	case string(old) != b.String():
		t.Errorf("%s holds another table; `go test -tags clients -run TestClients -update ./tests/clients` writes it", path)
	}
}
