package appliance

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
)

// TestSleep lets the model sleep at both levels: memory is freed, requests are refused, and after POST /wake_up replies
// are as before.
func TestSleep(t *testing.T) {
	for _, level := range []string{"1", "2"} {
		t.Run(level, func(t *testing.T) {
			s := start(t, `serve: sleep: true`)
			want, err := s.reply("hello there", 30)
			if err != nil {
				t.Fatal(err)
			}
			code, text := s.post(t, "/sleep?level="+level, "")
			var r struct {
				Level int   `json:"level"`
				Freed int64 `json:"freed_bytes"`
				Kept  int64 `json:"kept_bytes"`
			}
			if err := json.Unmarshal([]byte(text), &r); err != nil || code != 200 {
				t.Fatalf("%d %s: %v", code, text, err)
			}
			total, weights := int64(0), s.prepared().Ledger().Bytes("weights")
			for _, l := range s.serving().ledger {
				total += l.Actual
			}
			kept := map[string]int64{"1": weights, "2": 0}[level]
			if r.Kept != kept || r.Freed != total-kept {
				t.Errorf("%s: all %d, weights %d", text, total, weights)
			}
			if _, text := s.get(t, "/is_sleeping"); text != `{"is_sleeping":true}` {
				t.Error(text)
			}
			if code, text := s.get(t, "/readyz"); code != 503 || !strings.Contains(text, "sleeping") {
				t.Errorf("readyz: %d %s", code, text)
			}
			if code := s.status(t, "/health"); code != 200 {
				t.Errorf("health: %d", code)
			}
			if _, err := s.reply("hello there", 30); err == nil || !strings.Contains(err.Error(), "POST /wake_up") {
				t.Errorf("a request: %v", err)
			}
			_, metrics := s.get(t, "/metrics")
			if state := map[string]string{"1": "weights_offloaded", "2": "discard_all"}[level]; !strings.Contains(metrics, `sleep_state="`+state+`"} 1`) {
				t.Error("no sleep state in the metrics")
			}
			if code, text := s.post(t, "/wake_up", ""); code != 200 {
				t.Fatalf("wake: %d %s", code, text)
			}
			if got, err := s.reply("hello there", 30); err != nil || got != want {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
			if _, text := s.get(t, "/is_sleeping"); text != `{"is_sleeping":false}` {
				t.Error(text)
			}
		})
	}
}

func TestSleepRefused(t *testing.T) {
	s := start(t, "")
	if code, text := s.post(t, "/sleep", ""); code != 501 && code != 400 && code != 404 || !strings.Contains(text, "serve.sleep") {
		t.Errorf("off: %d %s", code, text)
	}
	s = start(t, `serve: sleep: true`)
	if code, text := s.post(t, "/sleep?level=3", ""); code != 400 || !strings.Contains(text, "level") {
		t.Errorf("level 3: %d %s", code, text)
	}
	if code, text := s.post(t, "/wake_up", ""); code != 200 {
		t.Errorf("awake: %d %s", code, text)
	}
}

// TestSleepThenChange: a live and a structural change while the model sleeps are in force when it wakes up.
func TestSleepThenChange(t *testing.T) {
	s := start(t, `reload: structural: "swap", serve: sleep: true`)
	if code, text := s.post(t, "/sleep?level=1", ""); code != 200 {
		t.Fatal(text)
	}
	s.withSequences(t, 8, `serve: {sleep: true, servedModelName: ["renamed"]}`)
	s.eventually(t, "the structural change", func() bool {
		l := s.Reloads()
		return len(l) > 0 && l[0].Class == "structural" && l[0].Outcome == Applied
	})
	if code, text := s.post(t, "/wake_up", ""); code != 200 {
		t.Fatal(text)
	}
	if !s.serves(t, "renamed") || s.engine().Stats().KVPages == 0 {
		t.Error("the changes are not in force")
	}
	if n := s.prepared().Plan.Options.MaxNumSeqs; n != 8 {
		t.Errorf("maxNumSeqs %d", n)
	}
}

// TestIdle: a model that loads on request is unloaded when it is idle and loaded by the next requests, all of which
// are answered.
func TestIdle(t *testing.T) {
	s := start(t, `serve: idle: {unload: "50ms", load: "onRequest"}`)
	if s.engine() != nil || s.phase.get() != Unloaded {
		t.Errorf("phase %v at start", s.phase.get())
	}
	for round := range 3 {
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				if _, err := s.reply("hello there", 10); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		clients.Wait()
		s.eventually(t, "unloaded", func() bool { return s.phase.get() == Unloaded })
	}
	if n := strings.Count(s.log.String(), "msg=\"the model is loaded\""); n < 3 {
		t.Errorf("loaded %d times", n)
	}
}

// TestIdleLoadFails: the requests that wait get the error, and the next ones try again.
func TestIdleLoadFails(t *testing.T) {
	on := always{failing: newFlag(true)}
	s := serveOn(t, on, toyModel(t), `serve: idle: {load: "onRequest"}`)
	if _, err := s.reply("hello there", 10); err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "could not be loaded") {
		t.Errorf("%v", err)
	}
	on.failing.Store(false)
	if _, err := s.reply("hello there", 10); err != nil {
		t.Error(err)
	}
}

// TestSleepLetsRequestsEnd: requests that run when the model is put to sleep end as usual.
func TestSleepLetsRequestsEnd(t *testing.T) {
	s := start(t, `serve: sleep: true`)
	wait := s.streams(t, 8)
	if code, text := s.post(t, "/sleep", ""); code != 200 {
		t.Fatal(text)
	}
	wait()
}

// TestDoorInOrder: requests that wait are let in in order, one beyond the limit is refused, and one that leaves
// makes way.
func TestDoorInOrder(t *testing.T) {
	d := newDoor(nil)
	d.hold(3, time.Time{}, nil)
	s := &served{}
	left, leave := context.WithCancel(context.Background())
	type entry struct {
		n   int
		err error
	}
	entered := make(chan entry)
	arrive := func(n int, ctx context.Context) {
		go func() {
			_, err := d.enter(ctx)
			entered <- entry{n, err}
		}()
		for {
			if w, _ := d.queue(); w == n {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	arrive(1, context.Background())
	arrive(2, left)
	arrive(3, context.Background())
	if _, err := d.enter(context.Background()); err == nil || !strings.Contains(err.Error(), "3 requests wait") {
		t.Errorf("beyond the limit: %v", err)
	}
	leave()
	if e := <-entered; e.n != 2 || e.err == nil {
		t.Errorf("%+v left", e)
	}
	d.open(s, func() {})
	for range 2 {
		if e := <-entered; e.err != nil {
			t.Error(e)
		}
	}
	if d.count(s) != 2 {
		t.Errorf("%d inside", d.count(s))
	}
	emptied := d.emptied(s)
	d.leave(s)
	select {
	case <-emptied:
		t.Error("emptied with one inside")
	default:
	}
	d.leave(s)
	<-emptied
	_, counts := d.queue()
	if counts[letIn] != 2 || counts[tooMany] != 1 || counts[wentAway] != 1 {
		t.Errorf("%v", counts)
	}
}

// TestRanksRest: a model of several ranks cannot sleep.
func TestRanksRest(t *testing.T) {
	for _, field := range []string{"sleep: true", "idle: {}"} {
		file := filepath.Join(t.TempDir(), "p.cue")
		writeFile(t, file, profileText(toyModel(t), "parallel: tensor: 2, serve: "+field))
		_, err := Prepare(file, Machine{Backends: []backend.Opener{ref.Opener{}}})
		if err == nil || !strings.Contains(err.Error(), "several ranks cannot be unloaded") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// delayed is backend ref whose devices open when release is closed.
type delayed struct {
	ref.Opener
	release chan struct{}
}

func (s delayed) Open(f backend.Facts, set backend.Settings, r backend.Reservation) (backend.Device, error) {
	<-s.release
	return s.Opener.Open(f, set, r)
}

// TestWaitingIsBounded: a request that waits for the model to load gets an error after serve.limits.requestTimeout.
func TestWaitingIsBounded(t *testing.T) {
	on := delayed{release: make(chan struct{})}
	s := serveOn(t, on, toyModel(t), `serve: {idle: load: "onRequest", limits: requestTimeout: "50ms"}`)
	if _, err := s.reply("hello there", 5); err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "requestTimeout") {
		t.Errorf("%v", err)
	}
	close(on.release)
	s.eventually(t, "ready", func() bool { return s.phase.get() == Ready })
}
