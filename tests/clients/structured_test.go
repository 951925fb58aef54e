//go:build clients

package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var structuredReplies = flag.Int("structured", 50, "replies of TestStructured; 1000: the whole of it")

// structuredCase is a line of testdata/structured.json: a constraint under which every reply
// ends within maxStructured tokens.
type structuredCase struct {
	Name  string         `json:"name"`
	Say   string         `json:"say"`   // the prompt
	Ask   map[string]any `json:"ask"`   // fields of the request
	Check string         `json:"check"` // for a grammar: a regular expression, or a name in checks
}

const maxStructured = 900

func structuredCases(t testing.TB) []structuredCase {
	t.Helper()
	b, err := os.ReadFile("testdata/structured.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []structuredCase
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// body returns request i of a case. Every other request has a high temperature.
func (c *structuredCase) body(i int) []byte {
	m := map[string]any{
		"model": modelName, "max_tokens": maxStructured, "seed": i, "temperature": []float64{0.4, 1.2}[i%2],
		"messages": []any{map[string]string{"role": "user", "content": c.Say}},
	}
	for k, v := range c.Ask {
		m[k] = v
	}
	b, _ := json.Marshal(m) // no error: the values come from JSON
	return b
}

// TestStructured checks the default model's replies under 50 schemas, expressions and
// grammars with implementations that are independent of the compiler: a JSON schema
// library, Go's regexp and parser.
func TestStructured(t *testing.T) {
	cases := structuredCases(t)
	checks := make([]func(string) error, len(cases))
	for i := range cases {
		checks[i] = cases[i].checker(t)
	}
	begun := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	tokens, distinct := 0, map[string]bool{}
	next := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range next {
				k := i % len(cases)
				text, n, err := structuredReply(base, cases[k].body(i))
				if err == nil {
					err = checks[k](text)
				}
				if err != nil {
					t.Errorf("%s, reply %d: %q: %v", cases[k].Name, i, text, err)
				}
				mu.Lock()
				tokens += n
				distinct[text] = true
				mu.Unlock()
			}
		})
	}
	for i := range *structuredReplies {
		next <- i
	}
	close(next)
	wg.Wait()
	t.Logf("%d replies under %d structures, %d of them distinct, %d tokens, %.0f s", *structuredReplies, len(cases), len(distinct), tokens, time.Since(begun).Seconds())
	if min := min(*structuredReplies, len(cases)) / 2; len(distinct) < min {
		t.Errorf("only %d distinct replies", len(distinct))
	}
}

// structuredReply returns the text and number of tokens of a reply that ended with "stop".
func structuredReply(url string, body []byte) (string, int, error) {
	r, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return "", 0, errors.Join(fmt.Errorf("%s: %s", r.Status, b), err)
	}
	var v struct {
		Choices []struct {
			Message      struct{ Content string }
			FinishReason string `json:"finish_reason"`
		}
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(b, &v); err != nil || len(v.Choices) != 1 {
		return "", 0, errors.Join(fmt.Errorf("it is %s", b), err)
	}
	c := v.Choices[0]
	if c.FinishReason != "stop" {
		err = fmt.Errorf("it ends by %q", c.FinishReason)
	}
	return c.Message.Content, v.Usage.CompletionTokens, err
}

// TestBombs checks that structures which would take minutes to compile are refused with a
// reason, while the server answers other requests.
func TestBombs(t *testing.T) {
	bomb := func(so map[string]any) []byte {
		b, _ := json.Marshal(map[string]any{"model": modelName, "max_tokens": 5, "structured_outputs": so, "messages": []any{map[string]string{"role": "user", "content": "Hi"}}})
		return b
	}
	done := make(chan error, 2)
	for _, so := range []map[string]any{
		{"regex": strings.Repeat("a?", 20000) + strings.Repeat("a", 20000)},
		{"json": map[string]any{"type": "integer", "allOf": []any{map[string]int{"multipleOf": 9973}, map[string]int{"multipleOf": 9967}, map[string]int{"multipleOf": 9949}, map[string]int{"multipleOf": 9941}}}},
	} {
		go func() {
			_, _, err := structuredReply(base, bomb(so))
			if err == nil || !strings.HasPrefix(err.Error(), "400") || !strings.Contains(err.Error(), "to compile; make it smaller") {
				err = fmt.Errorf("a bomb is answered by %v", err)
			} else {
				err = nil
			}
			done <- err
		}()
	}
	if _, _, err := structuredReply(base, bomb(map[string]any{"choice": []string{"yes", "no"}})); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
