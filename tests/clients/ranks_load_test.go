//go:build clients

package clients

import (
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestRanksLoad sends 500 requests at once to two ranks: none is lost, and each has all its tokens. The soak sends 2,000.
func TestRanksLoad(t *testing.T) { loadRanks(t, 500, 2) }

// loadRanks sends n requests at once, each on a connection of its own, for some tokens each.
func loadRanks(t *testing.T, n, tokens int) {
	r := startRanks(t, twoStages)
	at := time.Now()
	lost := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		s := &stream{first: make(chan struct{})}
		wg.Go(func() {
			<-start
			err := s.read(r.url, i%5, tokens)
			if err == nil && s.finish == "length" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			why := s.error
			if err != nil {
				why = err.Error()
			}
			lost[why]++
		})
	}
	close(start)
	wg.Wait()
	took := time.Since(at)
	http.DefaultClient.CloseIdleConnections()
	if len(lost) > 0 {
		t.Errorf("lost, by reason: %v", lost)
	}
	if got, want := metric(t, r.url, "vllm:generation_tokens_total"), float64(n*tokens); got != want {
		t.Errorf("the server counts %.0f tokens, not %.0f", got, want)
	}
	t.Logf("%d requests at once: lost %d, %.1f s, %.0f tokens/s, %.0f preemptions", n, len(lost), took.Seconds(), float64(n*tokens)/took.Seconds(), metric(t, r.url, "vllm:num_preemptions_total"))
	r.signal(t, "supervisor", syscall.SIGTERM)
	if code := r.code(); code != "0" {
		t.Errorf("exit code %s", code)
	}
	r.clean(t)
}
