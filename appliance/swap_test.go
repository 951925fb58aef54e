package appliance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/schema"
)

// byWay makes every structural change take one way.
func byWay(way plan.Transition) func(*Appliance) {
	return func(a *Appliance) {
		a.decide = func(*Appliance, *served, *Prepared) (plan.Transition, error) { return way, nil }
	}
}

// The ways, each with and without two engines at once where it has both.
var ways = map[string]plan.Transition{
	"rebuild without a gap": {Way: plan.Rebuild, KeepsWeights: true, Overlaps: true, Why: "a test"},
	"rebuild":               {Way: plan.Rebuild, KeepsWeights: true, Why: "a test"},
	"beside":                {Way: plan.Beside, Overlaps: true, Why: "a test"},
	"drain":                 {Way: plan.Drain, Why: "a test"},
}

// withSequences rewrites the server's profile with another scheduler.maxNumSeqs.
func (s *server) withSequences(t *testing.T, n int, more string) {
	t.Helper()
	text := profileText(s.model, `reload: structural: "swap", `+more)
	s.write(t, "rename", strings.Replace(text, "maxNumSeqs: 16", fmt.Sprintf("maxNumSeqs: %d", n), 1))
}

// reply returns the text of a greedy completion.
func (s *server) reply(prompt string, tokens int) (string, error) {
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d,"ignore_eos":true,"temperature":0}`, s.modelName(), prompt, tokens)
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	if r.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d: %s", r.StatusCode, b)
	}
	var v struct{ Choices []struct{ Text string } }
	if err := json.Unmarshal(b, &v); err != nil || len(v.Choices) != 1 {
		return "", fmt.Errorf("%s: %v", b, err)
	}
	return v.Choices[0].Text, nil
}

// TestSwap replaces the engine in every way while greedy requests run: none may fail or get another reply.
func TestSwap(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			s := start(t, `reload: structural: "swap"`, byWay(way))
			want, err := s.reply("hello there", 60)
			if err != nil {
				t.Fatal(err)
			}
			var clients sync.WaitGroup
			var over atomic.Bool
			for range 6 {
				clients.Go(func() {
					for !over.Load() {
						if got, err := s.reply("hello there", 60); err != nil || got != want {
							t.Errorf("%q, %v; want %q", got, err, want)
							return
						}
					}
				})
			}
			first := s.engine()
			for i, n := range []int{8, 12} {
				s.withSequences(t, n, "")
				r := s.waitApplied(t, i+1)
				if r.Class != string(schema.Structural) || r.Way != string(way.Way) || !strings.Contains(strings.Join(r.Changes, " "), "maxNumSeqs") {
					t.Errorf("%+v", r)
				}
				if way.Overlaps && r.Gap != "0s" || !way.Overlaps && r.Gap == "0s" {
					t.Errorf("gap %q", r.Gap)
				}
			}
			over.Store(true)
			clients.Wait()
			if s.engine() == first {
				t.Error("the engine is the same")
			}
			s.eventually(t, "the end of the swap", func() bool { return !s.swaps.running() })
			if got := s.prepared().Plan.Options.MaxNumSeqs; got != 12 {
				t.Errorf("maxNumSeqs %d", got)
			}
			if err := s.engine().Check(context.Background()); err != nil {
				t.Error(err)
			}
			if w := s.audit.waiting(); w != nil {
				t.Errorf("still waiting: %+v", w)
			}
		})
	}
}

// faulty is a backend whose next device fails in a phase.
type faulty struct {
	backend.Opener
	next *atomic.Pointer[string] // phase of the fault of the next device; nil: none
}

// The phases in which a device can fail.
const (
	failOpen  = "open"
	failPack  = "pack"
	failFirst = "first token"
)

var errFault = errors.New("injected fault")

func (f faulty) Open(facts backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	phase := ""
	if p := f.next.Swap(nil); p != nil {
		phase = *p
	}
	if phase == failOpen {
		return nil, fmt.Errorf("cannot allocate memory: %w", errFault)
	}
	d, err := f.Opener.Open(facts, s, r)
	if err != nil {
		return nil, err
	}
	return faultyDevice{d, d.(backend.Sharer), d.(backend.AdapterWriter), phase}, nil
}

type faultyDevice struct {
	backend.Device
	backend.Sharer
	backend.AdapterWriter
	phase string
}

func (d faultyDevice) Pack(i int, from backend.RowReader) error {
	if d.phase == failPack {
		return errFault
	}
	return d.Device.Pack(i, from)
}

func (d faultyDevice) Launch(e backend.Executable, b backend.Binding) error {
	if d.phase == failFirst {
		return errFault
	}
	return d.Device.Launch(e, b)
}

// TestSwapFails injects a fault in each phase of each way: the last good engine must serve afterwards, with the same
// replies, and the next change must work.
func TestSwapFails(t *testing.T) {
	for name, way := range ways {
		for _, phase := range []string{failOpen, failPack, failFirst} {
			if way.KeepsWeights && phase == failPack {
				continue // nothing is packed
			}
			t.Run(name+", "+phase, func(t *testing.T) {
				on := faulty{ref.Opener{}, &atomic.Pointer[string]{}}
				s := serveOn(t, on, toyModel(t), `reload: structural: "swap"`, byWay(way))
				want, err := s.reply("hello there", 40)
				if err != nil {
					t.Fatal(err)
				}
				on.next.Store(&phase)
				s.withSequences(t, 8, "")
				r := s.latest(t, Rejected)
				if !strings.Contains(r.Error, errFault.Error()) || r.Way != string(way.Way) {
					t.Errorf("%+v", r)
				}
				if got, err := s.reply("hello there", 40); err != nil || got != want {
					t.Errorf("%q, %v; want %q", got, err, want)
				}
				if n := s.prepared().Plan.Options.MaxNumSeqs; n != 16 {
					t.Errorf("maxNumSeqs %d", n)
				}
				if w := s.audit.waiting(); w == nil || !strings.Contains(w.Error, errFault.Error()) || !w.Restart {
					t.Errorf("waiting: %+v", w)
				}
				s.withSequences(t, 12, "")
				s.waitApplied(t, 1)
				if got, err := s.reply("hello there", 40); err != nil || got != want {
					t.Errorf("after the next change: %q, %v; want %q", got, err, want)
				}
			})
		}
	}
}

// TestSwapLosesBoth: if neither the new nor the old engine can be opened, the server ends with both reasons.
func TestSwapLosesBoth(t *testing.T) {
	on := always{failing: &atomic.Bool{}}
	s := serveOn(t, on, toyModel(t), `reload: structural: "swap"`, byWay(ways["drain"]))
	on.failing.Store(true)
	s.withSequences(t, 8, "")
	err := <-s.ended
	if err == nil || strings.Count(err.Error(), errFault.Error()) != 2 || !strings.Contains(err.Error(), "last good engine") {
		t.Errorf("Run: %v", err)
	}
	s.ended <- nil
}

// always is backend ref whose devices cannot be opened after failing is set.
type always struct {
	ref.Opener
	failing *atomic.Bool
}

func (a always) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	if a.failing.Load() {
		return nil, errFault
	}
	return a.Opener.Open(f, s, r)
}

func newFlag(set bool) *atomic.Bool {
	f := &atomic.Bool{}
	f.Store(set)
	return f
}

// permitted is backend ref whose devices, after the first, open when a value is received.
type permitted struct {
	ref.Opener
	opened *atomic.Int64
	permit chan struct{}
}

func (s permitted) Open(f backend.Facts, set backend.Settings, r backend.Reservation) (backend.Device, error) {
	if s.opened.Add(1) > 1 {
		<-s.permit
	}
	return s.Opener.Open(f, set, r)
}

// TestSwapFollows changes the profile while an engine is being replaced: live fields and keys are in force at once, and
// the structural change follows.
func TestSwapFollows(t *testing.T) {
	on := permitted{opened: &atomic.Int64{}, permit: make(chan struct{}, 8)}
	s := serveOn(t, on, toyModel(t), `reload: structural: "swap"`, byWay(ways["beside"]))
	s.withSequences(t, 8, "")
	s.eventually(t, "the first swap", func() bool { return on.opened.Load() == 2 })
	s.withSequences(t, 12, `serve: servedModelName: ["renamed"]`)
	s.eventually(t, "the live change", func() bool { return s.serves(t, "renamed") })
	if !strings.Contains(s.log.String(), "the newest changes follow") {
		t.Error("the log does not say that the change follows")
	}
	if n := s.prepared().Plan.Options.MaxNumSeqs; n != 16 {
		t.Errorf("maxNumSeqs %d before a swap has ended", n)
	}
	on.permit <- struct{}{}
	on.permit <- struct{}{}
	s.eventually(t, "the second swap", func() bool { return s.prepared().Plan.Options.MaxNumSeqs == 12 && !s.swaps.running() })
	if !s.serves(t, "renamed") {
		t.Error("the live change is gone")
	}
	swapped := 0
	for _, r := range s.Reloads() {
		if r.Way != "" && r.Outcome == Applied {
			swapped++
		}
	}
	if swapped != 2 {
		t.Errorf("%d swaps: %+v", swapped, s.Reloads())
	}
}

// TestSwapSettingsFirst: settings of the new profile that cannot be used are refused before its engine is opened.
func TestSwapSettingsFirst(t *testing.T) {
	on := permitted{opened: &atomic.Int64{}, permit: make(chan struct{})}
	s := serveOn(t, on, toyModel(t), `reload: structural: "swap"`, byWay(ways["drain"]))
	s.model = toyModel(t)
	s.withSequences(t, 8, `parsers: chatTemplate: "{{ broken"`)
	if r := s.latest(t, Rejected); !strings.Contains(r.Error, "parsers.chatTemplate") || on.opened.Load() != 1 {
		t.Errorf("%d engines were opened, %+v", on.opened.Load(), r)
	}
}

// TestSwapEndsWithTheServer: a server that is asked to end while an engine is opened beside the old one drains and
// closes both.
func TestSwapEndsWithTheServer(t *testing.T) {
	for _, name := range []string{"beside", "drain"} {
		t.Run(name, func(t *testing.T) {
			on := permitted{opened: &atomic.Int64{}, permit: make(chan struct{}, 8)}
			s := serveOn(t, on, toyModel(t), `reload: structural: "swap"`, byWay(ways[name]))
			s.withSequences(t, 8, "")
			s.eventually(t, "the swap", func() bool { return on.opened.Load() == 2 })
			s.drain()
			on.permit <- struct{}{}
			if err := <-s.ended; err != nil {
				t.Errorf("Run: %v", err)
			}
			s.ended <- nil
		})
	}
}

// TestSwapLeavesRestart: a change that only a restart can make stays pending beside one that is made by a swap, and
// alone is reported.
func TestSwapLeavesRestart(t *testing.T) {
	s := start(t, `reload: structural: "swap"`, byWay(ways["beside"]))
	s.withSequences(t, 8, "serve: metricsCompat: true")
	s.waitApplied(t, 1)
	s.eventually(t, "the report of the rest", func() bool {
		w := s.audit.waiting()
		return w != nil && len(w.Changes) == 1 && strings.Contains(w.Changes[0], "serve.metricsCompat") && s.Reloads()[0].Outcome == Reported
	})
	if r := s.Reloads()[0]; !strings.Contains(r.Note, "restart") || r.Error != "" {
		t.Errorf("%+v", r)
	}
	if n := s.prepared().Plan.Options.MaxNumSeqs; n != 8 {
		t.Errorf("maxNumSeqs %d", n)
	}
}
