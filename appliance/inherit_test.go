package appliance

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"vapp.dev/appliance/auditlog"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
)

// TestInherit checks which adapters a new engine has after one whose adapters clients changed.
func TestInherit(t *testing.T) {
	const two = `lora: {maxLoras: 2, adapters: {a: "./one", b: "./two"}}`
	for name, c := range map[string]struct {
		was, next string // lora
		had       string // by the engine before
		loaded    string
		lost      string
	}{
		"a client's":             {"lora: maxLoras: 2", "lora: maxLoras: 2", "c=two", "c=two", ""},
		"unloaded by a client":   {two, two, "b=two", "b=two", ""},
		"replaced by a client":   {two, two, "a=two b=two", "a=two b=two", ""},
		"replaced, then changed": {two, `lora: {maxLoras: 2, adapters: {a: "./three", b: "./two"}}`, "a=two b=two", "a=three b=two", ""},
		"taken by the profile":   {"lora: maxLoras: 2", two, "a=three", "a=one b=two", ""},
		"no slot":                {"lora: maxLoras: 2", "lora: maxLoras: 1", "c=one d=two", "c=one", `d: adapter "d": no slot is free`},
		"does not fit any more":  {"lora: maxLoras: 2", "lora: maxLoras: 2", "c=bad d=two", "d=two", `c: adapter "c": rank 64 is above 16`},
		"another model":          {"lora: maxLoras: 2", `lora: adapters: a: "./one", model: revision: "v2"`, "a=two c=two", "a=one", "c: a client loaded it for model org/model, the model is org/model@v2 now"},
		"the name of the model":  {"lora: maxLoras: 2", `lora: {}, serve: servedModelName: ["c"]`, "c=one", "", "c: serve.servedModelName has its name now"},
		"a folder that is gone":  {"lora: {}", `lora: adapters: a: "./gone"`, "", "", "a: Loading lora a failed: No adapter found for ./gone"},
		"no engine before":       {"", two, "", "a=one b=two", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folders(t, dir, "one", "two", "three", "bad")
			next := loraProfile(t, dir, c.next)
			e := &slotEngine{slots: next.LoRA.MaxLoras}
			fresh := &adapters{engine: e, profile: next, over: &handover{}}
			if name != "a folder that is gone" {
				if err := fresh.change(t.Context(), nil, next); err != nil {
					t.Fatal(err)
				}
			}
			set := adapterSet{}
			if c.was != "" {
				set.under = loraProfile(t, dir, c.was)
			}
			for _, l := range strings.Fields(c.had) {
				name, folder, _ := strings.Cut(l, "=")
				set.list = append(set.list, chat.Adapter{Name: name, Path: filepath.Join(dir, folder)})
			}
			for range 2 { // taking over is repeated at the end of a swap
				lost := strings.Join(fresh.inherit(t.Context(), func() adapterSet { return set }, next), " ")
				if c.lost == "" && lost != "" || !strings.HasPrefix(lost, c.lost) {
					t.Errorf("lost %q, want %q", lost, c.lost)
				}
				if got := loadedIn(e); got != c.loaded {
					t.Errorf("loaded %q, want %q", got, c.loaded)
				}
			}
		})
	}
	var none *adapters
	set := adapterSet{[]chat.Adapter{{Name: "a"}, {Name: "c"}}, loraProfile(t, t.TempDir(), `lora: adapters: a: "./one"`)}
	if lost := none.inherit(t.Context(), func() adapterSet { return set }, loraProfile(t, t.TempDir(), "")); len(lost) != 1 || !strings.HasPrefix(lost[0], "c: the profile has no slots") {
		t.Errorf("lost %q", lost)
	}
}

// loadedIn returns the names and folders of an engine's adapters.
func loadedIn(e *slotEngine) string {
	var out []string
	for _, a := range (&adapters{engine: e}).Adapters() {
		out = append(out, a.Name+"="+filepath.Base(a.Path))
	}
	return strings.Join(out, " ")
}

// TestHandover: changes that clients make in the old engine while the new one takes its place are made in both.
func TestHandover(t *testing.T) {
	dir := t.TempDir()
	folders(t, dir, "one", "two")
	p := loraProfile(t, dir, "lora: maxLoras: 4")
	was, is := &slotEngine{slots: 4}, &slotEngine{slots: 4}
	old, fresh := &adapters{engine: was, profile: p, over: &handover{}}, &adapters{engine: is, profile: p, over: &handover{}}
	load := func(name, path string) {
		t.Helper()
		if err := old.LoadAdapter(t.Context(), name, path, false); err != nil {
			t.Fatal(err)
		}
	}
	load("early", "./one")
	load("gone", "./one")
	late := make(chan error, 1)
	lost := fresh.inherit(t.Context(), func() adapterSet {
		old.over.next.Store(fresh)
		set := adapterSet{old.Adapters(), p}
		go func() { late <- old.UnloadAdapter(t.Context(), "gone") }() // it waits until the adapters are taken over
		return set
	}, p)
	if err := <-late; err != nil || lost != nil {
		t.Fatal(err, lost)
	}
	load("after", "./two")
	if got := loadedIn(is); got != "after=two early=one" || got != loadedIn(was) {
		t.Errorf("new engine: %q, old: %q", got, loadedIn(was))
	}
}

// TestAdaptersSurvive replaces the engine in each way, also in vain, and lets the model sleep: adapters that clients
// loaded answer as before, and one for which the new engine has no slot is named.
func TestAdaptersSurvive(t *testing.T) {
	dir := t.TempDir()
	toy := filepath.Join(dir, "toy")
	if err := enginetest.WriteLlama(toy, enginetest.Llama{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"one", "two"} {
		writeAdapter(t, filepath.Join(dir, name), toy, 4, uint64(i))
	}
	for way, last := range map[string]string{"rebuild": "drain", "beside": "beside", "drain": "drain"} {
		t.Run(way, func(t *testing.T) {
			var taken atomic.Pointer[string]
			taken.Store(&way)
			choose := func(a *Appliance) {
				a.decide = func(*Appliance, *served, *Prepared) (plan.Transition, error) { return ways[*taken.Load()], nil }
			}
			log := filepath.Join(t.TempDir(), "audit.log")
			more := func(slots int) string {
				return fmt.Sprintf(`serve: {servedModelName: ["toy"], sleep: true}, log: audit: file: %q, lora: {maxLoras: %d, maxRank: 8, allowRuntimeUpdating: true, adapters: one: "%s/one"}`, log, slots, dir)
			}
			on := faulty{ref.Opener{}, &atomic.Pointer[string]{}}
			s := serveOn(t, on, toy, `reload: structural: "swap", `+more(2), choose)
			if status, body := s.post(t, "/v1/load_lora_adapter", `{"lora_name":"two","lora_path":"`+dir+`/two"}`); status != 200 {
				t.Fatal(body)
			}
			want := map[string][]int{}
			for _, m := range []string{"toy", "one", "two"} {
				want[m] = s.tokens(t, m)
			}
			same := func(when string) {
				t.Helper()
				for m, tokens := range want {
					if got := s.tokens(t, m); !slices.Equal(got, tokens) {
						t.Errorf("%s: %s has %v, before %v", when, m, got, tokens)
					}
				}
			}
			s.withSequences(t, 8, more(2))
			if r := s.waitApplied(t, 1); r.Lost != nil {
				t.Errorf("%+v", r)
			}
			same("after a swap")
			s.swaps.await() // the old engine is closed
			if code, text := s.post(t, "/sleep", ""); code != 200 {
				t.Fatal(text)
			}
			if code, text := s.post(t, "/wake_up", ""); code != 200 {
				t.Fatal(text)
			}
			same("after a sleep")
			fault := failFirst
			on.next.Store(&fault)
			s.withSequences(t, 12, more(2))
			if r := s.latest(t, Rejected); r.Lost != nil || !strings.Contains(r.Error, errFault.Error()) {
				t.Errorf("%+v", r)
			}
			same("after a swap that failed")
			taken.Store(&last)
			s.withSequences(t, 8, more(1))
			r := s.waitApplied(t, 2)
			if len(r.Lost) != 1 || !strings.HasPrefix(r.Lost[0], "two: ") || !strings.Contains(r.Lost[0], "lora.maxLoras") {
				t.Errorf("%+v", r)
			}
			delete(want, "two")
			same("after a swap with fewer slots")
			if s.tokens(t, "two") != nil {
				t.Error("an adapter without a slot answers")
			}
			if !strings.Contains(s.log.String(), `adapter="two: `) {
				t.Error("the log does not name the adapter")
			}
			named := 0
			if err := auditlog.Scan(log, func(r auditlog.Record) { named += len(r.Entry.Lost) }); err != nil || named != 1 {
				t.Errorf("the audit log names %d, %v", named, err)
			}
		})
	}
}
