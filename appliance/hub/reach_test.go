package hub

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestReach checks the hub's clock, which statuses count, and that the token is not sent.
func TestReach(t *testing.T) {
	status := http.StatusNotFound
	const date = "Mon, 02 Jan 2006 15:04:05 GMT"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token was sent")
		}
		w.Header().Set("Date", date)
		w.WriteHeader(status)
	}))
	c := NewClient(Settings{Endpoint: s.URL, Token: "secret", Stall: time.Minute}, "test")
	at, err := c.Reach(t.Context())
	if err != nil || at.Format(http.TimeFormat) != date {
		t.Errorf("%v, %v; want %s", at, err, date)
	}
	status = http.StatusBadGateway
	if _, err := c.Reach(t.Context()); err == nil || !strings.HasSuffix(err.Error(), " answered 502 Bad Gateway") {
		t.Errorf("a proxy's answer: %v", err)
	}
	s.Close()
	if _, err := c.Reach(t.Context()); err == nil {
		t.Error("a closed server was reached")
	}
}
