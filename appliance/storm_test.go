package appliance

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vapp.dev/appliance/auditlog"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/ref"
)

// storm injects faults, and counts the bytes of the arenas that are open.
type storm struct {
	faulty
	mu         sync.Mutex
	open, peak int64
	weights    map[uint64]int // devices by the ID of their weights
}

func (s *storm) add(d backend.Device, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, weights := d.(backend.Sharer).WeightsInfo().ID, backend.Weights
	for a, n := range d.Usage() {
		if backend.Arena(a) != weights {
			s.open += int64(by) * n
		}
	}
	before := s.weights[id]
	s.weights[id] += by
	switch {
	case by > 0 && before == 0:
		s.open += d.Usage()[weights]
	case by < 0 && s.weights[id] == 0:
		s.open -= d.Usage()[weights]
	}
	s.peak = max(s.peak, s.open)
}

// Open implements backend.Opener.
func (s *storm) Open(f backend.Facts, set backend.Settings, r backend.Reservation) (backend.Device, error) {
	d, err := s.faulty.Open(f, set, r)
	if err != nil {
		return nil, err
	}
	s.add(d, 1)
	return stormDevice{d.(faultyDevice), s}, nil
}

type stormDevice struct {
	faultyDevice
	storm *storm
}

func (d stormDevice) Close() error {
	d.storm.add(d.faultyDevice, -1)
	return d.faultyDevice.Close()
}

// chatStream returns the text of a streamed greedy chat.
func (s *server) chatStream(prompt string, tokens int) (string, error) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}],"max_tokens":%d,"ignore_eos":true,"temperature":0,"stream":true}`, s.modelName(), prompt, tokens)
	r, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", r.StatusCode)
	}
	var text strings.Builder
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			return text.String(), nil
		default:
			var chunk struct {
				Error   any
				Choices []struct{ Delta struct{ Content string } }
			}
			if err := json.Unmarshal([]byte(data), &chunk); err != nil || chunk.Error != nil {
				return "", fmt.Errorf("%s: %v", data, err)
			}
			for _, c := range chunk.Choices {
				text.WriteString(c.Delta.Content)
			}
		}
	}
	return "", fmt.Errorf("the stream broke off after %d bytes", text.Len())
}

// TestSwapStorm changes the profile again and again, in every way and with a fault in each phase of each, while
// clients stream greedy chats: no request may be lost or get another reply, the arenas may never exceed the ledgers,
// and the audit log must be whole.
func TestSwapStorm(t *testing.T) {
	t.Run("ref", func(t *testing.T) { swapStorm(t, ref.Opener{}) })
	t.Run("cpu", func(t *testing.T) { swapStorm(t, cpu.Opener{}) })
}

func swapStorm(t *testing.T, of backend.Opener) {
	names := slices.Sorted(maps.Keys(ways))
	phases := []string{"", failOpen, failPack, failFirst}
	on := &storm{faulty: faulty{of, &atomic.Pointer[string]{}}, weights: map[uint64]int{}}
	var way atomic.Pointer[plan.Transition]
	var allowed atomic.Int64 // bytes of the arenas of the greatest ledger
	audit := filepath.Join(t.TempDir(), "audit.log")
	log := `log: {level: "warn", audit: file: "` + audit + `"}, serve: accessLog: false`
	edit := func(text string) string { return strings.Replace(text, `"ref"`, strconv.Quote(of.Name()), 1) }
	s := serveProfile(t, on, toyModel(t), edit, `reload: structural: "swap", `+log, func(a *Appliance) {
		a.decide = func(_ *Appliance, old *served, next *Prepared) (plan.Transition, error) {
			w := *way.Load()
			was, is := arenaBytes(old.prepared), arenaBytes(next)
			total := max(was, is)
			if w.Overlaps {
				total = was + is
			}
			if w.Overlaps && w.KeepsWeights {
				total -= next.Ledger().Bytes(backend.Weights.String())
			}
			allowed.Store(max(allowed.Load(), total))
			return w, nil
		}
	})
	prompts := []string{"hello there", "what is a plan", "one two three four five"}
	want := map[string]string{}
	for _, p := range prompts {
		text, err := s.chatStream(p, 48)
		if err != nil {
			t.Fatal(err)
		}
		want[p] = text
	}
	var clients sync.WaitGroup
	var over atomic.Bool
	var replies atomic.Int64
	for i := range stormClients {
		clients.Go(func() {
			for n := i; !over.Load(); n++ {
				p := prompts[n%len(prompts)]
				if got, err := s.chatStream(p, 48); err != nil || got != want[p] {
					t.Errorf("client %d: %q, %v", i, got, err)
					return
				}
				replies.Add(1)
			}
		})
	}
	gaps := map[string][]time.Duration{}
	outcomes := map[Outcome]int{}
	for i := range stormChanges {
		w := ways[names[i%len(names)]]
		way.Store(&w)
		phase := phases[(i/len(names))%len(phases)]
		if w.KeepsWeights && phase == failPack {
			phase = failFirst
		}
		if phase != "" {
			on.next.Store(&phase)
		}
		seen := len(s.Reloads())
		newest := time.Time{}
		if seen > 0 {
			newest = s.Reloads()[0].At
		}
		n := 17 + i%7
		if n == s.prepared().Plan.Options.MaxNumSeqs { // an earlier change to it is in force
			n = 24 + i%7
		}
		s.withSequences(t, n, log)
		var r Reload
		s.eventually(t, "the outcome", func() bool {
			l := s.Reloads()
			if len(l) > 0 && l[0].At.After(newest) && l[0].Way != "" {
				r = l[0]
			}
			return r.Way != "" && !s.swaps.running()
		})
		expected := Applied
		if phase != "" {
			expected = Rejected
		}
		if r.Outcome != expected || r.Way != string(w.Way) {
			t.Errorf("change %d, %s, fault %q: %+v", i, w.Way, phase, r)
		}
		outcomes[r.Outcome]++
		gap, err := time.ParseDuration(r.Gap)
		if err != nil {
			t.Error(err)
		}
		if phase == "" {
			gaps[names[i%len(names)]] = append(gaps[names[i%len(names)]], gap)
		}
	}
	over.Store(true)
	clients.Wait()
	if on.peak > allowed.Load() {
		t.Errorf("the arenas had %d bytes, the ledgers allow %d", on.peak, allowed.Load())
	}
	reloads := 0
	var chain auditlog.Chain
	if err := auditlog.Scan(audit, func(r auditlog.Record) {
		if b := chain.Check(r); b != nil {
			t.Error(b)
		}
		if r.Entry.Event == auditlog.Reload && r.Entry.Class == "structural" {
			reloads++
		}
	}); err != nil {
		t.Error(err)
	}
	if reloads != stormChanges {
		t.Errorf("%d of %d changes are in the audit log", reloads, stormChanges)
	}
	t.Logf("%d replies, %v, peak %d of %d bytes", replies.Load(), outcomes, on.peak, allowed.Load())
	for name, list := range gaps {
		slices.SortFunc(list, cmp.Compare[time.Duration])
		t.Logf("%s: gap p50 %v, p99 %v", name, list[len(list)/2], list[(len(list)*99)/100])
	}
}

// arenaBytes returns the planned bytes of the arenas.
func arenaBytes(p *Prepared) (n int64) {
	for a := backend.Arena(0); a < backend.NumArenas; a++ {
		n += p.Ledger().Bytes(a.String())
	}
	return n
}

var _ backend.Opener = (*storm)(nil)

// TestSwapDrainTimeout: a request that outlasts serve.drainTimeout is aborted, is counted, and the new engine serves.
func TestSwapDrainTimeout(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			s := serveOn(t, ref.Opener{}, longModel(t), `maxModelLen: "128K", memory: kvCache: "72MiB", reload: structural: "swap", serve: drainTimeout: "50ms"`, byWay(way))
			begun := make(chan bool)
			ended := make(chan string, 1)
			go func() {
				finish, err := s.stream(endless, func() { close(begun) })
				ended <- fmt.Sprint(finish, err)
			}()
			<-begun
			s.withSequences(t, 8, `maxModelLen: "128K", memory: kvCache: "72MiB", serve: drainTimeout: "50ms"`)
			s.waitApplied(t, 1)
			if got := <-ended; !strings.Contains(got, "abort") {
				t.Errorf("the stream ended with %s", got)
			}
			if _, err := s.reply("hello there", 5); err != nil {
				t.Error(err)
			}
			_, metrics := s.get(t, "/metrics")
			if !strings.Contains(metrics, "vapp_engine_swap_aborted_requests_total 1\n") {
				t.Error("the aborted request is not counted")
			}
		})
	}
}
