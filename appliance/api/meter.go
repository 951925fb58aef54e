package api

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/chat"
)

// PerKey limits each key by itself; 0: no limit.
type PerKey struct {
	MaxConcurrent     int   // POST requests that may be open
	RequestsPerMinute int   // POST requests
	TokensPerMinute   int64 // of prompts and replies, counted when a reply ends
}

// meter is what one key uses. It outlives changes of the settings.
type meter struct {
	mu       sync.Mutex
	open     int
	requests bucket
	tokens   bucket
}

// bucket is what was used, less what has run off since: a minute's worth of the
// limit in a minute.
type bucket struct {
	used float64
	at   time.Time
}

// drain brings the bucket to now.
func (b *bucket) drain(now time.Time, perMinute float64) {
	if d := now.Sub(b.at).Minutes(); d > 0 {
		b.used, b.at = max(0, b.used-d*perMinute), now
	}
}

// wait is how long it takes until there is room for n more within the limit.
func (b *bucket) wait(n, perMinute float64) time.Duration {
	over := b.used + n - perMinute
	if over <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(over / perMinute * float64(time.Minute)))
}

// overLimit is how far a key is over one of its limits.
type overLimit struct {
	what string
	wait time.Duration
}

// begin counts a request in, or says why not; limits that are off count nothing.
func (m *meter) begin(now time.Time, l PerKey) *overLimit {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.MaxConcurrent > 0 && m.open >= l.MaxConcurrent {
		return &overLimit{strconv.Itoa(l.MaxConcurrent) + " requests are open", time.Second}
	}
	if per := float64(l.TokensPerMinute); per > 0 {
		m.tokens.drain(now, per)
		// A key in debt, or just at its limit, waits until a token is free.
		if w := m.tokens.wait(1, per); w > 0 {
			return &overLimit{strconv.FormatInt(l.TokensPerMinute, 10) + " tokens per minute", w}
		}
	}
	if per := float64(l.RequestsPerMinute); per > 0 {
		m.requests.drain(now, per)
		if w := m.requests.wait(1, per); w > 0 {
			return &overLimit{strconv.Itoa(l.RequestsPerMinute) + " requests per minute", w}
		}
		m.requests.used++
	}
	m.open++
	return nil
}

// hold counts in what goes on after its request was answered.
func (m *meter) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open++
}

// end counts a request out.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open--
}

// charge counts the tokens of a reply that has ended.
func (m *meter) charge(now time.Time, l PerKey, tokens int) {
	if l.TokensPerMinute <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens.drain(now, float64(l.TokensPerMinute))
	m.tokens.used += float64(tokens)
}

const meterKey = "meter"

// metered holds a key to its limits, on every route that computes.
func (s *Server) metered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		l := settings(c)
		if c.Request().Method != http.MethodPost || isOpen(c.Request().URL.Path, l) {
			return next(c)
		}
		m := c.Get(meterKey).(*meter)
		if over := m.begin(s.cfg.Now(), l.PerKey); over != nil {
			c.Response().Header().Set(echo.HeaderRetryAfter, retryAfter(over.wait))
			return chat.Errorf(chat.Limited, "", "Rate limit reached: %s is the limit of a key. Please try again in %s seconds.", over.what, retryAfter(over.wait))
		}
		defer m.end()
		return next(c)
	}
}

// retryAfter is a time as the header has it: whole seconds, at least one.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}
