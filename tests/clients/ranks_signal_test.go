//go:build clients

package clients

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRanksSignals checks that a signal to the process that started the ranks acts on rank 0: SIGTERM lets a running stream end, a
// second one cuts it off, SIGHUP changes live fields, and a structural change is reported only.
func TestRanksSignals(t *testing.T) {
	t.Run("SIGTERM", func(t *testing.T) { drains(t, "supervisor", syscall.SIGTERM) })
	t.Run("a second signal", func(t *testing.T) {
		r := startRanks(t, twoStages)
		s := r.stream(t, 4000)
		r.signal(t, "supervisor", syscall.SIGTERM)
		r.awaitPhase(t, "draining")
		at := r.signal(t, "supervisor", syscall.SIGTERM)
		took := r.gone(t, at)
		if saw, code := s.saw(), r.code(); saw == "whole reply" || code != "1" || took > goneIn {
			t.Errorf("the client saw: %s; exit code %s after %v", saw, code, took)
		}
		r.clean(t)
	})
	t.Run("reload", func(t *testing.T) {
		r := startRanks(t, twoStages+"\n\treload: watch: false")
		s := r.stream(t, 100)
		r.edit(t, `["smollm2"]`, `["smollm2", "newname"]`)
		r.signal(t, "supervisor", syscall.SIGHUP)
		r.awaitLog(t, "trigger=SIGHUP class=live outcome=applied")
		reply, err := http.Get(r.url + "/v1/models/newname")
		if err != nil {
			t.Fatal(err)
		}
		if reply.Body.Close(); reply.StatusCode != http.StatusOK {
			t.Errorf("the new name: %s", reply.Status)
		}
		r.edit(t, "pipeline: 2", "tensor: 3")
		r.edit(t, "ranks: 2", "ranks: 3")
		r.signal(t, "supervisor", syscall.SIGHUP)
		r.awaitLog(t, "a structural change needs a restart")
		if saw := s.saw(); saw != "whole reply" {
			t.Errorf("the client saw: %s", saw)
		}
		r.signal(t, "supervisor", syscall.SIGTERM)
		if code := r.code(); code != "0" {
			t.Errorf("exit code %s", code)
		}
		r.clean(t)
	})
}

// stream returns a stream whose first token has come.
func (r *ranked) stream(t *testing.T, tokens int) *stream {
	t.Helper()
	s := openStream(r.url, 1, tokens)
	select {
	case <-s.first:
	case <-s.done:
		t.Fatalf("no token: %s, %v", s.error, s.err)
	}
	return s
}

// edit replaces a text of the profile.
func (r *ranked) edit(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(r.profile())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), from) {
		t.Fatalf("the profile has no %s", from)
	}
	if err := os.WriteFile(r.profile(), []byte(strings.Replace(string(b), from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// clean checks that the ranks have ended and left nothing.
func (r *ranked) clean(t *testing.T) {
	t.Helper()
	r.gone(t, time.Now())
	if left := r.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// drains sends a signal while a stream runs, which must end whole, and all processes after it, with exit code 0.
func drains(t *testing.T, who string, s syscall.Signal) {
	r := startRanks(t, twoStages)
	running := r.stream(t, 100)
	r.signal(t, who, s)
	r.awaitLog(t, "msg=draining")
	if saw := running.saw(); saw != "whole reply" {
		t.Errorf("the client saw: %s", saw)
	}
	if code := r.code(); code != "0" {
		t.Errorf("exit code %s", code)
	}
	r.clean(t)
}
