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

// PerKey limits each key separately; 0: no limit.
type PerKey struct {
	MaxConcurrent     int   // open POST requests
	RequestsPerMinute int   // POST requests
	TokensPerMinute   int64 // tokens of prompts and replies, counted when a reply ends
}

// meter counts the usage of one key. It survives changes of the settings.
type meter struct {
	mu       sync.Mutex
	open     int
	requests bucket
	tokens   bucket
}

// bucket is a leaky bucket: usage that decreases by perMinute each minute.
type bucket struct {
	used float64
	at   time.Time
}

// drain updates the bucket to the current time.
func (b *bucket) drain(now time.Time, perMinute float64) {
	if d := now.Sub(b.at).Minutes(); d > 0 {
		b.used, b.at = max(0, b.used-d*perMinute), now
	}
}

// wait returns the time until n more fit within the limit.
func (b *bucket) wait(n, perMinute float64) time.Duration {
	over := b.used + n - perMinute
	if over <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(over / perMinute * float64(time.Minute)))
}

// overLimit describes an exceeded limit of a key.
type overLimit struct {
	what string        // the limit
	wait time.Duration // until a request fits again
}

// begin counts a request as open. It returns the limit that the request exceeds, nil
// for none. Limits of 0 count nothing.
func (m *meter) begin(now time.Time, l PerKey) *overLimit {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.MaxConcurrent > 0 && m.open >= l.MaxConcurrent {
		return &overLimit{strconv.Itoa(l.MaxConcurrent) + " requests are open", time.Second}
	}
	if per := float64(l.TokensPerMinute); per > 0 {
		m.tokens.drain(now, per)
		// A key at or over its limit waits until one token is free.
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

// hold counts a background response as open after its request was answered.
func (m *meter) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open++
}

// end counts a request as closed.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open--
}

// charge counts the tokens of a completed reply.
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

// limitKeys applies the limits of the request's key to POST routes that need a key.
func (s *Server) limitKeys(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		l := settings(c)
		if c.Request().Method != http.MethodPost || isPublic(c.Request().URL.Path, l) {
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

// retryAfter formats a duration for the header Retry-After: whole seconds, at least 1.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}
