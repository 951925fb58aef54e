//go:build clients

package clients

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// firstQuestions maps other questions that newcomers ask first to a word of the answer; "": any
// answer that ends before 300 tokens.
var firstQuestions = map[string]string{
	"What is the capital of france":              "Paris",
	"What is the capital of Germany?":            "Berlin",
	"What is the capital of Japan?":              "Tokyo",
	"What color is the sky?":                     "blue",
	"What is the opposite of hot?":               "cold",
	"Who wrote Romeo and Juliet?":                "Shakespeare",
	"What is water made of?":                     "hydrogen",
	"What is machine learning?":                  "data",
	"Write a Python function that adds numbers.": "def ",
	"Explain gravity in one sentence":            "",
	"Hello":                                      "",
	"Hi!":                                        "",
}

// TestFirstQuestion asks the README's question twenty times with the sampling and the template of
// the default profile: ten times as a stream, ten times not. Each answer must have "Paris".
func TestFirstQuestion(t *testing.T) {
	s := defaultServer(t)
	right := 0
	for i := range 20 {
		answer := replyTo(t, s.url, map[string]any{"messages": []any{map[string]any{"role": "user", "content": paris}}, "stream": i%2 == 0})
		if strings.Contains(answer, "Paris") {
			right++
		} else {
			t.Errorf("%q", answer)
		}
	}
	t.Logf("%q: %d of 20 answers have \"Paris\"", paris, right)
	for question, word := range firstQuestions {
		answer := replyTo(t, s.url, map[string]any{"messages": []any{map[string]any{"role": "user", "content": question}}, "max_tokens": 300})
		if !strings.Contains(answer, word) || strings.TrimSpace(answer) == "" {
			t.Errorf("%s: %q, want %q in it", question, answer, word)
		}
		t.Logf("%s %.100q", question, answer)
	}
}

// defaultServer runs the default profile on a free port of this machine.
func defaultServer(t *testing.T) *server {
	t.Helper()
	text, err := os.ReadFile("../../profiles/smollm2.cue")
	if err != nil {
		t.Fatal(err)
	}
	models, err := filepath.Abs("../../models")
	if err != nil {
		t.Fatal(err)
	}
	const names = `serve: servedModelName: ["smollm2"]`
	if !bytes.Contains(text, []byte(names)) || !bytes.Contains(text, []byte(`"../models/`)) {
		t.Fatalf("the default profile does not have %q and a model in ../models", names)
	}
	text = bytes.Replace(text, []byte(names), []byte(names+"\n\tserve: {host: \"127.0.0.1\", port: 0}"), 1)
	text = bytes.Replace(text, []byte(`"../models/`), []byte(`"`+models+"/"), 1)
	s := &server{dir: t.TempDir(), log: &tail{addr: make(chan string, 1)}}
	s.profile = filepath.Join(s.dir, "p.cue")
	if err := os.WriteFile(s.profile, text, 0o644); err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command("../../bin/vapp", "up", s.profile)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// replyTo returns the text of the reply to a request, streamed or not.
func replyTo(t *testing.T, url string, request map[string]any) string {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v: %s", r.Status, err, text)
	}
	type words struct{ Content string }
	var answer strings.Builder
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		if line == "" || line == "[DONE]" {
			continue
		}
		var part struct {
			Choices []struct{ Delta, Message words }
		}
		if err := json.Unmarshal([]byte(line), &part); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		for _, c := range part.Choices {
			answer.WriteString(c.Delta.Content + c.Message.Content)
		}
	}
	return answer.String()
}
