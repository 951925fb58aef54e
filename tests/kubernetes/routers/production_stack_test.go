package routers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// sessionKey is the header by which a request names its session.
const sessionKey = "X-Session"

// TestProductionStack runs the router of vLLM's production stack, with sessions, before two servers, of which one has the 64
// streams of a session. Of its policies none reads a metric of a server: a request without a session goes to the server to
// which the router sent fewer in its window. So the idle server gets the first 64 of 200 requests and half of the others,
// which no server can change. What the router reads from /metrics it shows on its own page.
func TestProductionStack(t *testing.T) {
	program, port := program(t, "PRODUCTION_STACK_ROUTER"), fleet(t)
	own := freePort(t, "127.0.0.1")
	urls := []string{"http://" + hosts[0] + ":" + port, "http://" + hosts[1] + ":" + port}
	start(t, nil, program, "--host", "127.0.0.1", "--port", own, "--service-discovery", "static", "--static-backends", strings.Join(urls, ","),
		"--static-models", "smollm2,smollm2", "--routing-logic", "session", "--session-key", sessionKey, "--engine-stats-interval", "1", "--request-stats-window", "600")
	router := "http://127.0.0.1:" + own
	await(t, "the router is ready", func() bool { return answers(router + "/health") })

	session, sent := "", [2]int{}
	for i := 0; session == ""; i++ {
		if i == 32 {
			t.Fatal("no session of 32 goes to the first server")
		}
		name, before := fmt.Sprint("session ", i), succeeded(t, urls[0])
		if err := send(t.Context(), router, "Once", name); err != nil {
			t.Fatal(err)
		}
		at := 1
		if succeeded(t, urls[0]) > before {
			session, at = name, 0
		}
		sent[at]++
	}
	occupy(t, router, urls[0], 64, session)
	sent[0] += 64
	want, before := (200+sent[0]-sent[1])/2, succeeded(t, urls[1])
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	ended := make(chan error, 200)
	for i := range 200 {
		all.Go(func() { ended <- send(ctx, router, fmt.Sprintf("%d green bottles", i), "") })
		if sent[1]+i < sent[0] {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		} else {
			time.Sleep(20 * time.Millisecond) // the router counts a request when it sends it
		}
	}
	await(t, fmt.Sprintf("%d of 200 requests went to the idle server", want), func() bool { return succeeded(t, urls[1])-before >= want-4 })
	if got := succeeded(t, urls[1]) - before; got > want+4 {
		t.Errorf("%d of 200 went to the idle server, its counts say %d", got, want)
	} else {
		t.Logf("%d of 200 went to the idle server, the first %d without a wait", got, sent[0]-sent[1])
	}

	var text string
	await(t, "the router has read both servers", func() bool {
		text = get(t, router+"/metrics")
		for _, u := range urls {
			if !strings.Contains(text, fmt.Sprintf("vllm:gpu_prefix_cache_queries_total{server=%q}", u)) {
				return false
			}
		}
		return true
	})
	var models struct{ Data []struct{ ID string } }
	if err := json.Unmarshal([]byte(get(t, router+"/v1/models")), &models); err != nil || len(models.Data) == 0 || models.Data[0].ID != "smollm2" {
		t.Errorf("models %+v, %v", models, err)
	}
}

// send posts a request, of a session unless that is empty, and returns an error unless it is answered.
func send(ctx context.Context, url, prompt, session string) error {
	q, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", bytes.NewReader(body(prompt, 1, false)))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	if session != "" {
		q.Header.Set(sessionKey, session)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s", url, r.Status, text)
	}
	return nil
}
