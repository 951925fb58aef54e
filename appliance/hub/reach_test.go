package hub

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestReach checks the hub's clock, that any status counts, and that the token is not sent.
func TestReach(t *testing.T) {
	const date = "Mon, 02 Jan 2006 15:04:05 GMT"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token was sent")
		}
		w.Header().Set("Date", date)
		w.WriteHeader(http.StatusNotFound)
	}))
	c := NewClient(Settings{Endpoint: s.URL, Token: "secret", Stall: time.Minute}, "test")
	at, err := c.Reach(t.Context())
	if err != nil || at.Format(http.TimeFormat) != date {
		t.Errorf("%v, %v; want %s", at, err, date)
	}
	s.Close()
	if _, err := c.Reach(t.Context()); err == nil {
		t.Error("a closed server was reached")
	}
}
