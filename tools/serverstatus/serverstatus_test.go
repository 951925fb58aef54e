package serverstatus

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"vapp.dev/appliance/drift"
	"vapp.dev/tools/console"
)

// client returns a client of a server with these answers, the last one again and again.
func client(t *testing.T, answers ...string) *console.Client {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/admin/drift" {
			t.Errorf("path %s", r.URL.Path)
		}
		text := answers[min(int(n.Add(1)), len(answers))-1]
		if text == "lost" {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(s.Close)
	c, err := console.NewClient(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCode(t *testing.T) {
	for want, r := range map[int]drift.Report{
		Ready: {Phase: "ready"}, Drifting: {Phase: "ready", Drift: true}, Loading: {Phase: "loading", Drift: true}, Ending: {Phase: "draining", Drift: true},
	} {
		if got := Code(r); got != want {
			t.Errorf("%+v: %d, want %d", r, got, want)
		}
	}
	if got := Code(drift.Report{Phase: "failed"}); got != Ending {
		t.Errorf("failed: %d", got)
	}
}

// TestWait checks which answers end a wait.
func TestWait(t *testing.T) {
	const loading, ready, failed = `{"phase":"loading"}`, `{"phase":"ready"}`, `{"phase":"failed"}`
	for _, c := range []struct {
		answers  []string
		limit    int // answers after the first
		phase    string
		problem  string
		requests int // further answers that were asked for
	}{
		{[]string{ready}, 9, "ready", "", 0},
		{[]string{"lost", loading, loading, ready}, 9, "ready", "", 3},
		{[]string{loading, failed}, 9, "failed", "", 1},
		{[]string{loading}, 2, "loading", "", 2},
		{[]string{"lost"}, 2, "", "closed the connection", 2},
		{[]string{loading, `{"object":"list"}`}, 9, "", "no report of vapp", 1},
		{[]string{`<html>`}, 9, "", "no report of vapp", 0},
	} {
		asked := 0
		r, err := Wait(context.Background(), client(t, c.answers...), "", func() bool {
			if asked == c.limit {
				return false
			}
			asked++
			return true
		})
		if (err != nil) != (c.problem != "") || err != nil && !strings.Contains(err.Error(), c.problem) || r.Phase != c.phase || asked != c.requests {
			t.Errorf("%q: phase %q, %v, asked %d times more", c.answers, r.Phase, err, asked)
		}
		if lost := c.problem == "closed the connection"; Lost(err) != lost {
			t.Errorf("%q: lost %v", c.answers, !lost)
		}
	}
}
