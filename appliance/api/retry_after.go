package api

import (
	"math"
	"sync"
	"time"
)

// completionRate estimates how many requests complete per second. The weight of a
// completion falls by a factor of e in each rateWindow.
type completionRate struct {
	mu    sync.Mutex
	first time.Time // the first completion; zero: none
	last  time.Time
	ends  float64 // sum of the weights, as of last
}

const rateWindow = 30 * time.Second

// add counts a completed request.
func (p *completionRate) add(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first.IsZero() {
		p.first = now
	}
	p.ends = 1 + p.ends*decay(now.Sub(p.last))
	p.last = now
}

// rate returns completions per second; 0 when the sum of the weights is below 1.
func (p *completionRate) rate(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ends := p.ends * decay(now.Sub(p.last))
	if ends < 1 {
		return 0
	}
	seen := rateWindow.Seconds() * (1 - decay(now.Sub(p.first)))
	return ends / max(1, seen)
}

func decay(d time.Duration) float64 { return math.Exp(-max(0, d.Seconds()) / rateWindow.Seconds()) }

// maxWait is the largest Retry-After that a client gets.
const maxWait = 5 * time.Minute

// waitFor returns the time until that many requests complete at a rate per second:
// at least one second, and one second when the rate is 0 (unknown).
func waitFor(ahead int, rate float64) time.Duration {
	if rate <= 0 {
		return time.Second
	}
	seconds := float64(max(1, ahead)) / rate
	return time.Duration(min(maxWait.Seconds(), max(1, seconds)) * float64(time.Second))
}

// retryDelay returns the Retry-After of a refused request: the estimated time until
// the waiting requests and one more have completed.
func (s *Server) retryDelay() time.Duration {
	ahead := 1
	if s.cfg.Load != nil && s.cfg.State.Ready() {
		_, waiting := s.cfg.Load()
		ahead += waiting
	}
	return waitFor(ahead, s.completions.rate(s.cfg.Now()))
}
