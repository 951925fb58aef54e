package appliance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/schema"
)

// several is a running Fleet.
type several struct {
	*Fleet
	url   string
	log   *logBuffer
	files []string
	drain context.CancelFunc
	ended chan error
}

// fleetText is the profile of one model of several.
func fleetText(name, model, more string) string {
	text := profileText(model, `serve: servedModelName: ["`+name+`"], `+more)
	return strings.Replace(text, `name: "toy"`, `name: "`+name+`"`, 1)
}

// toys writes toy models that give different replies.
func toys(t *testing.T, n int) (dirs []string) {
	t.Helper()
	for i := range n {
		dir := filepath.Join(t.TempDir(), "toy")
		if err := enginetest.WriteLlama(dir, enginetest.Llama{Seed: uint64(3 + i)}); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// configs writes profiles and returns their configurations for a machine with that much memory; 0: this one's.
func configs(t *testing.T, log io.Writer, memory int64, texts ...string) (all []Config) {
	t.Helper()
	dir := t.TempDir()
	for i, text := range texts {
		file := filepath.Join(dir, string(rune('a'+i))+".cue")
		writeFile(t, file, text)
		all = append(all, Config{Profile: file, Machine: Machine{Backends: []backend.Opener{ref.Opener{}}, Memory: memory}, Version: "test", Log: log})
	}
	return all
}

// startFleet starts servers of profiles.
func startFleet(t *testing.T, memory int64, texts []string, change ...func(*Fleet)) *several {
	t.Helper()
	s := &several{log: &logBuffer{}, ended: make(chan error, 1)}
	all := configs(t, s.log, memory, texts...)
	for _, c := range all {
		s.files = append(s.files, c.Profile)
	}
	f, err := NewFleet(all)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for _, do := range change {
		do(f)
	}
	s.Fleet, s.url = f, "http://"+f.Addr().String()
	ctx, drain := context.WithCancel(context.Background())
	s.drain = drain
	go func() { s.ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		drain()
		f.Abort(errors.New("the test is over"))
		<-s.ended
	})
	s.eventually(t, "ready", func() bool { code, _ := s.get(t, "/readyz"); return code == http.StatusOK })
	return s
}

func (s *several) eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	(&server{log: s.log}).eventually(t, what, yes)
}

func (s *several) get(t *testing.T, path string) (int, string) {
	t.Helper()
	r, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// complete returns the text of a greedy completion.
func (s *several) complete(model string, tokens int) (string, error) {
	body := fmt.Sprintf(`{"model":%q,"prompt":"hello there","max_tokens":%d,"ignore_eos":true,"temperature":0}`, model, tokens)
	r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d, retry after %q: %s, %v", r.StatusCode, r.Header.Get("Retry-After"), b, err)
	}
	var v struct{ Choices []struct{ Text string } }
	if err := json.Unmarshal(b, &v); err != nil || len(v.Choices) != 1 {
		return "", fmt.Errorf("%s: %v", b, err)
	}
	return v.Choices[0].Text, nil
}

const onRequestText = `serve: idle: {load: "onRequest", unload: "0s"}, `

// TestFleet: two models with clients on both, and a third that is loaded by its first request. Each model's replies are
// those that it gives alone.
func TestFleet(t *testing.T) {
	dirs := toys(t, 3)
	want := map[string]string{}
	for i, dir := range dirs {
		alone := serve(t, dir, "")
		text, err := alone.reply("hello there", 40)
		if err != nil {
			t.Fatal(err)
		}
		want[string(rune('a'+i))] = text
	}
	s := startFleet(t, 0, []string{fleetText("a", dirs[0], ""), fleetText("b", dirs[1], ""), fleetText("c", dirs[2], onRequestText)})
	s.eventually(t, "all models are ready", func() bool { return strings.Contains(s.log.String(), "all models are ready") }) // /readyz is with the first
	if code, text := s.get(t, "/v1/models"); code != 200 || strings.Count(text, `"object":"model"`) != 3 {
		t.Errorf("models: %d %s", code, text)
	}
	if s.members[2].loaded() || !s.members[1].loaded() {
		t.Fatal("the model on request is loaded, or another is not")
	}
	var clients sync.WaitGroup
	for _, name := range []string{"a", "b", "a", "b", "c", "c"} {
		clients.Go(func() {
			for range 5 {
				if got, err := s.complete(name, 40); err != nil || got != want[name] {
					t.Errorf("%s: %q, %v; want %q", name, got, err, want[name])
				}
			}
		})
	}
	clients.Wait()
	if !s.members[2].loaded() {
		t.Error("the model on request was not loaded")
	}
	if _, err := s.complete("d", 4); err == nil || !strings.Contains(err.Error(), "The model `d` does not exist.") {
		t.Errorf("an unknown model: %v", err)
	}
	_, metrics := s.get(t, "/metrics")
	for _, name := range []string{"a", "b", "c"} {
		if !strings.Contains(metrics, `vllm:request_success_total{engine="0",finished_reason="length",model_name="`+name+`"} 10`) {
			t.Errorf("the metrics of %s lack its requests", name)
		}
	}
	if code, text := s.get(t, "/admin/drift?profile=b"); code != 200 || !strings.Contains(text, "b.cue") {
		t.Errorf("drift of b: %d %s", code, text)
	}
	s.drain()
	if err := <-s.ended; err != nil {
		t.Errorf("drain: %v", err)
	}
	s.ended <- nil
	if n := strings.Count(s.log.String(), "msg=drained"); n != 3 {
		t.Errorf("%d servers drained", n)
	}
}

// least returns the smallest memory in MiB with which the profiles fit.
func least(t *testing.T, texts []string) int64 {
	t.Helper()
	n := sort.Search(16<<10, func(mib int) bool {
		all := configs(t, io.Discard, int64(mib+1)<<20, texts...)
		var paths []string
		var machines []Machine
		for _, c := range all {
			paths, machines = append(paths, c.Profile), append(machines, c.Machine)
		}
		made, _, err := PrepareTogether(paths, machines)
		closeAll(made)
		return err == nil
	})
	return int64(n+1) << 20
}

// TestFleetTakesTurnsInMemory: of two models on request one fits. Each takes the other's place when that is idle; while it
// has a request, the other waits, and is refused with the reason if that lasts too long.
func TestFleetTakesTurnsInMemory(t *testing.T) {
	dirs := toys(t, 2)
	long := `maxModelLen: 4096, memory: kvCache: "32MiB", ` + onRequestText
	texts := []string{fleetText("a", dirs[0], long), fleetText("b", dirs[1], long)}
	for i, dir := range dirs {
		if err := enginetest.WriteLlama(dir, enginetest.Llama{Seed: uint64(3 + i), MaxPos: 4096}); err != nil {
			t.Fatal(err)
		}
	}
	late := make(chan struct{})
	s := startFleet(t, least(t, texts), texts, func(f *Fleet) {
		f.places.limit = func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, stop := context.WithCancel(ctx)
			go func() {
				select {
				case <-late:
					stop()
				case <-ctx.Done():
				}
			}()
			return ctx, stop
		}
	})
	for range 3 {
		for i, name := range []string{"a", "b"} {
			if _, err := s.complete(name, 4); err != nil {
				t.Fatal(err)
			}
			if !s.members[i].loaded() || s.members[1-i].loaded() {
				t.Fatalf("after a request for %s: loaded %v, %v", name, s.members[0].loaded(), s.members[1].loaded())
			}
		}
	}
	body := `{"model":"b","prompt":"hello","max_tokens":4000,"ignore_eos":true,"stream":true}`
	stream, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stream.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := s.complete("a", 4)
		refused <- err
	}()
	s.eventually(t, "a request that waits", func() bool { n, _ := s.members[0].door.queue(); return n == 1 })
	close(late)
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "503, retry after") || !strings.Contains(err.Error(), "beside b, which have requests") {
		t.Errorf("a model that does not fit beside one in use: %v", err)
	}
	if !s.members[1].loaded() {
		t.Error("the model in use was unloaded")
	}
	s.places.limit = func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
	served := make(chan error, 1)
	go func() {
		_, err := s.complete("a", 4)
		served <- err
	}()
	s.eventually(t, "a request that waits", func() bool { n, _ := s.members[0].door.queue(); return n == 1 })
	stream.Body.Close() // the client leaves
	if err := <-served; err != nil {
		t.Errorf("when the other has no request any more: %v", err)
	}
}

// TestFleetRefused: profiles that cannot run together are refused before anything is opened.
func TestFleetRefused(t *testing.T) {
	dir := toyModel(t)
	_, err := NewFleet(configs(t, io.Discard, 2<<30, fleetText("a", dir, `maxModelLen: 64, memory: kvCache: "1GiB"`), fleetText("b", dir, `maxModelLen: 64, memory: kvCache: "1.25GiB"`)))
	var e *plan.JointError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "a.cue") || !strings.Contains(err.Error(), "b.cue") || !strings.Contains(err.Error(), "memory.kvCache") {
		t.Errorf("too much memory: %v", err)
	}
	_, err = NewFleet(configs(t, io.Discard, 0, fleetText("a", dir, ""), fleetText("b", dir, `log: format: "json", serve: timeouts: idle: "9s"`)))
	if err == nil || !strings.Contains(err.Error(), "log.format") || !strings.Contains(err.Error(), "serve.timeouts.idle") || !strings.Contains(err.Error(), "a.cue:") {
		t.Errorf("another listener: %v", err)
	}
	_, err = NewFleet(configs(t, io.Discard, 0, fleetText("a", dir, ""), fleetText("b", filepath.Join(dir, "nothing"), ""), fleetText("c", dir, "nonsense: 1")))
	if err == nil || !strings.Contains(err.Error(), "nothing") || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("two bad profiles: %v", err)
	}
}

// TestFleetReload: a reload changes one server, and cannot give it a name of another.
func TestFleetReload(t *testing.T) {
	dirs := toys(t, 2)
	s := startFleet(t, 0, []string{fleetText("a", dirs[0], ""), fleetText("b", dirs[1], "")})
	outcome := func(i int, o Outcome) func() bool {
		return func() bool {
			l := s.members[i].Reloads()
			return len(l) > 0 && l[0].Outcome == o
		}
	}
	writeFile(t, s.files[1], strings.Replace(fleetText("b", dirs[1], ""), `servedModelName: ["b"]`, `servedModelName: ["a"]`, 1))
	s.eventually(t, "a rejected reload", outcome(1, Rejected))
	if l := s.members[1].Reloads()[0]; !strings.Contains(l.Error, `the name "a" is also served by the profile at`) {
		t.Errorf("%+v", l)
	}
	writeFile(t, s.files[1], strings.Replace(fleetText("b", dirs[1], ""), `servedModelName: ["b"]`, `servedModelName: ["new"]`, 1))
	s.eventually(t, "a reload", outcome(1, Applied))
	if _, err := s.complete("new", 4); err != nil {
		t.Error(err)
	}
	if _, err := s.complete("a", 4); err != nil {
		t.Error(err)
	}
	if _, err := s.complete("b", 4); err == nil {
		t.Error("the old name is served")
	}
	writeFile(t, s.files[1], fleetText("b", dirs[1], onRequestText))
	s.eventually(t, "a rejected change of serve.idle.load", func() bool {
		l := s.members[1].Reloads()
		return len(l) > 0 && strings.Contains(l[0].Error, "restart the server")
	})
	if n := len(s.members[0].Reloads()); n != 0 {
		t.Errorf("%d reloads of the other server", n)
	}
}

// TestFleetFails: if one model cannot be loaded, all servers end, and the error names its profile.
func TestFleetFails(t *testing.T) {
	dirs := toys(t, 2)
	log := &logBuffer{}
	all := configs(t, log, 0, fleetText("a", dirs[0], ""), fleetText("b", dirs[1], ""))
	all[1].Machine.Backends = []backend.Opener{always{failing: newFlag(true)}}
	f, err := NewFleet(all)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Run(t.Context()) }()
	select {
	case err := <-ended:
		if err == nil || !strings.HasPrefix(err.Error(), "b: ") {
			t.Errorf("%v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the other server goes on")
	}
	if !bytes.Contains([]byte(log.String()), []byte("drained")) {
		t.Error("the other server did not drain")
	}
}

// settable is a clock that a test sets.
type settable struct {
	mu sync.Mutex
	at time.Time
}

func (c *settable) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *settable) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// TestFleetIdle: a model is unloaded when it has had no request for serve.idle.unload, and loaded by the next one. A model
// that is loaded at start keeps its memory meanwhile, so that one on request does not take it.
func TestFleetIdle(t *testing.T) {
	clock := &settable{at: time.Unix(1e9, 0)}
	dirs := toys(t, 2)
	s := startFleet(t, 0, []string{fleetText("a", dirs[0], `serve: idle: unload: "10m"`), fleetText("b", dirs[1], `serve: idle: {load: "onRequest", unload: "20m"}`)}, func(f *Fleet) {
		for _, a := range f.members {
			a.reloader.now, a.door.now = clock.now, clock.now
		}
	})
	for _, name := range []string{"a", "b"} {
		if _, err := s.complete(name, 4); err != nil {
			t.Fatal(err)
		}
	}
	clock.add(10 * time.Minute)
	s.eventually(t, "a is unloaded", func() bool { return !s.members[0].loaded() })
	if !s.members[1].loaded() {
		t.Error("b is unloaded after 10 of 20 minutes")
	}
	kept := func() string {
		s.places.mu.Lock()
		defer s.places.mu.Unlock()
		return fmt.Sprint(s.places.inMemory(-1))
	}
	if got := kept(); got != "[0 1]" {
		t.Errorf("the memory is kept for %s", got)
	}
	clock.add(10 * time.Minute)
	s.eventually(t, "b is unloaded", func() bool { return !s.members[1].loaded() })
	s.eventually(t, "the memory of b is free", func() bool { return kept() == "[0]" })
	for _, name := range []string{"a", "b"} {
		if _, err := s.complete(name, 4); err != nil {
			t.Error(err)
		}
	}
	if code, _ := s.get(t, "/health"); code != 200 {
		t.Errorf("health %d", code)
	}
}

// TestFleetSwap: a structural change replaces one server's engine, never beside the old one, while clients of both servers are
// answered. A change that does not fit beside the others is rejected.
func TestFleetSwap(t *testing.T) {
	dirs := toys(t, 2)
	const swap = `reload: structural: "swap", `
	texts := []string{fleetText("a", dirs[0], swap), fleetText("b", dirs[1], swap)}
	s := startFleet(t, least(t, texts)+(64<<20), texts)
	want := map[string]string{}
	for _, name := range []string{"a", "b"} {
		text, err := s.complete(name, 30)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = text
	}
	over := make(chan struct{})
	var clients sync.WaitGroup
	for name := range want {
		clients.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if got, err := s.complete(name, 30); err != nil || got != want[name] {
					t.Errorf("%s: %q, %v; want %q", name, got, err, want[name])
					return
				}
			}
		})
	}
	writeFile(t, s.files[1], strings.Replace(texts[1], "maxNumSeqs: 16", "maxNumSeqs: 8", 1))
	s.eventually(t, "a structural change", func() bool {
		l := s.members[1].Reloads()
		return len(l) > 0 && l[0].Outcome == Applied && l[0].Class == string(schema.Structural)
	})
	if l := s.members[1].Reloads()[0]; l.Way == string(plan.Beside) || l.Gap == "0s" || !strings.Contains(l.Note, "other models") {
		t.Errorf("two engines at once: %+v", l)
	}
	if n := s.members[1].prepared().Plan.Options.MaxNumSeqs; n != 8 {
		t.Errorf("maxNumSeqs %d", n)
	}
	writeFile(t, s.files[1], strings.Replace(texts[1], `kvCache: "32MiB"`, `kvCache: "300MiB"`, 1))
	s.eventually(t, "a rejected change", func() bool {
		l := s.members[1].Reloads()
		return len(l) > 0 && l[0].Outcome == Rejected && strings.Contains(l[0].Error, "do not fit together")
	})
	close(over)
	clients.Wait()
}
