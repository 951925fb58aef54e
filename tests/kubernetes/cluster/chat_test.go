package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// get returns the body of a page.
func get(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", url, answer.StatusCode, text)
	}
	return string(text), err
}

// stream asks for a greedy chat on a connection of its own, reads its events to [DONE], and returns the
// text.
func stream(ctx context.Context, url, prompt string, tokens int) (string, error) {
	body, _ := json.Marshal(map[string]any{
		"model": "smollm2", "stream": true, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
		"messages": []map[string]string{{"role": "user", "content": prompt}},
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return "", err
	}
	r.Close = true
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return "", fmt.Errorf("status %d: %s", answer.StatusCode, text)
	}
	var text, finish string
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			if finish != "length" && finish != "stop" {
				return "", fmt.Errorf("the stream ended with finish_reason %q", finish)
			}
			return text, nil
		}
		var event struct {
			Choices []struct {
				Delta  struct{ Content string }
				Finish string `json:"finish_reason"`
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil || event.Error != nil {
			return "", fmt.Errorf("event %s: %v", data, err)
		}
		for _, c := range event.Choices {
			text += c.Delta.Content
			if c.Finish != "" {
				finish = c.Finish
			}
		}
	}
	return "", fmt.Errorf("the stream was cut after %d bytes: %v", len(text), lines.Err())
}

// load is a number of clients that each stream one chat after the other until stop.
type load struct {
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	done    atomic.Int64
	mu      sync.Mutex
	lost    []string
	altered int
}

// startLoad starts clients. All ask the same greedy chat, so every reply is the first one.
func startLoad(ctx context.Context, url string, clients, tokens int, want string) *load {
	stop, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel}
	for range clients {
		l.wait.Go(func() {
			for stop.Err() == nil {
				text, err := stream(ctx, url, "Count.", tokens)
				l.mu.Lock()
				switch {
				case err != nil:
					l.lost = append(l.lost, err.Error())
				case text != want:
					l.altered++
				}
				l.mu.Unlock()
				l.done.Add(1)
			}
		})
	}
	return l
}

// end lets the running chats finish.
func (l *load) end() {
	l.cancel()
	l.wait.Wait()
}
