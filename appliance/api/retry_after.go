package api

import (
	"math"
	"sync"
	"time"
)

// pace is the rate at which requests ended lately. An end counts e⁻¹ as much after
// each rateWindow.
type pace struct {
	mu    sync.Mutex
	first time.Time // end that counts; zero: none
	last  time.Time
	ends  float64 // that count, as of last
}

const rateWindow = 30 * time.Second

// ended counts the end of a request.
func (p *pace) ended(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first.IsZero() {
		p.first = now
	}
	p.ends = 1 + p.ends*fade(now.Sub(p.last))
	p.last = now
}

// rate returns ends per second; 0 where less than one counts.
func (p *pace) rate(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ends := p.ends * fade(now.Sub(p.last))
	if ends < 1 {
		return 0
	}
	seen := rateWindow.Seconds() * (1 - fade(now.Sub(p.first)))
	return ends / max(1, seen)
}

func fade(d time.Duration) float64 { return math.Exp(-max(0, d.Seconds()) / rateWindow.Seconds()) }

// maxWait bounds what a client is asked to wait.
const maxWait = 5 * time.Minute

// waitFor returns how long it takes until ahead requests have ended at a rate per
// second: at least one second, which is also the answer where no rate is known.
func waitFor(ahead int, rate float64) time.Duration {
	if rate <= 0 {
		return time.Second
	}
	seconds := float64(max(1, ahead)) / rate
	return time.Duration(min(maxWait.Seconds(), max(1, seconds)) * float64(time.Second))
}

// retry returns after what time a refused client should come again: when those that
// wait for the engine have begun, and one more has ended.
func (s *Server) retry() time.Duration {
	ahead := 1
	if s.cfg.Load != nil && s.cfg.State.Service() != nil {
		_, waiting := s.cfg.Load()
		ahead += waiting
	}
	return waitFor(ahead, s.pace.rate(s.cfg.Now()))
}
