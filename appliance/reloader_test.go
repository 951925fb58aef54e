package appliance

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// disk is a file system that fails on demand, and a clock that the test advances.
type disk struct {
	mu    sync.Mutex
	fails map[string]error
	at    time.Time
	later []func() // scheduled readings
	waits []time.Duration
}

// onDisk makes a server read the profile's files from d, only when the test calls it.
func onDisk(d *disk) func(*Appliance) {
	d.fails, d.at = map[string]error{}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return func(a *Appliance) {
		r := a.reloader
		r.read = func(path string) ([]byte, error) {
			d.mu.Lock()
			err := d.fails[path]
			d.mu.Unlock()
			if err != nil {
				return nil, &os.PathError{Op: "open", Path: path, Err: err}
			}
			return readSmall(path)
		}
		r.now = func() time.Time { d.mu.Lock(); defer d.mu.Unlock(); return d.at }
		r.after = func(wait time.Duration, f func()) { d.later, d.waits = append(d.later, f), append(d.waits, wait) }
	}
}

func (d *disk) fail(path string, err error) { d.mu.Lock(); defer d.mu.Unlock(); d.fails[path] = err }
func (d *disk) pass(by time.Duration)       { d.mu.Lock(); defer d.mu.Unlock(); d.at = d.at.Add(by) }

// accepts reports whether the server accepts a key.
func (s *server) accepts(t *testing.T, key string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), "GET", s.url+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := visitor.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// takes fails the test unless the server accepts exactly these of the keys a, b, c and "".
func (s *server) takes(t *testing.T, when string, want ...string) {
	t.Helper()
	for _, k := range []string{"a", "b", "c", ""} {
		if got := s.accepts(t, k); got != slices.Contains(want, k) {
			t.Errorf("%s: key %q accepted: %v; want %v", when, k, got, want)
		}
	}
}

// outcomes returns class and outcome of the reloads after the first n, the oldest first.
func (s *server) outcomes(n int) (list []string) {
	all := s.Reloads()
	for i := len(all) - n - 1; i >= 0; i-- {
		list = append(list, all[i].Class+" "+string(all[i].Outcome))
	}
	return list
}

func (s *server) expect(t *testing.T, when string, before int, want string) {
	t.Helper()
	if got := strings.Join(s.outcomes(before), ", "); got != want {
		t.Errorf("%s: %q, want %q\n%v", when, got, want, s.Reloads())
	}
}

// smaller returns the server's profile with a structural change and additional fields.
func (s *server) smaller(t *testing.T, more string) {
	s.write(t, "rename", strings.Replace(profileText(s.model, still+more), "maxNumSeqs: 16", "maxNumSeqs: 8", 1))
}

// still turns off watching, so that the profile is read only when the test reads it.
const still = "reload: watch: false, "

// TestLiveBesideStructural checks that a live change takes effect while a structural one
// waits, also if one edit has both, and that a reverted structural change no longer waits.
func TestLiveBesideStructural(t *testing.T) {
	s := start(t, still)
	read := func() int { n := len(s.Reloads()); s.reloader.reload(TriggerFile); return n }
	s.smaller(t, "")
	s.expect(t, "a structural edit", read(), "structural reported")
	s.smaller(t, `serve: apiKeys: ["a"]`)
	s.expect(t, "keys while it waits", read(), "live applied")
	s.takes(t, "keys while a structural change waits", "a")
	if r := s.Reloads()[0]; len(r.Pending) != 1 || !strings.Contains(r.Pending[0], "maxNumSeqs") {
		t.Errorf("the outcome does not say what waits: %+v", r)
	}
	if w := s.audit.waiting(); w == nil || !strings.Contains(w.Plan, "maxNumSeqs") {
		t.Errorf("waiting: %+v", w)
	}
	s.edit(t, "rename", still+`serve: apiKeys: ["a"]`)
	s.expect(t, "taken back", read(), "structural withdrawn")
	s.expect(t, "nothing more", read(), "")
	if w := s.audit.waiting(); w != nil {
		t.Errorf("still waiting: %+v", w)
	}
	s.smaller(t, `serve: apiKeys: ["a"]`)
	s.expect(t, "again", read(), "structural reported")
	s.edit(t, "rename", still+`serve: apiKeys: ["b"]`)
	s.expect(t, "taken back with a live change", read(), "live applied, structural withdrawn")
	s.smaller(t, `serve: {apiKeys: ["a"], servedModelName: ["both"]}, reload: debounce: "20ms"`)
	s.expect(t, "both in one edit", read(), "live applied, structural reported")
	if got := s.modelName(); got != "both" {
		t.Errorf("served as %s", got)
	}
	s.edit(t, "rename", still+`serve: {apiKeys: ["a"], servedModelName: ["both"]}, memory: swapSpace: "900GiB"`)
	s.expect(t, "a structural change that does not fit", read(), "structural rejected")
	s.edit(t, "rename", still+`serve: {apiKeys: ["b"], servedModelName: ["both"]}, memory: swapSpace: "900GiB"`)
	s.expect(t, "keys with it", read(), "live applied")
	s.takes(t, "keys with a structural change that does not fit", "b")
}

// TestAnotherModel checks that a profile with another model changes neither the running
// model's parsers nor its default name.
func TestAnotherModel(t *testing.T) {
	s := start(t, still)
	was := s.modelName()
	s.write(t, "rename", strings.Replace(profileText(s.model, still+`parsers: reasoning: "qwen3", sampling: maxTokens: 7`), `source: "`, `source: "./other`, 1))
	s.reloader.reload(TriggerFile)
	p := s.live.Load().profile
	if p.Serve.ServedModelName[0] != was || p.Parsers.Reasoning != "" || p.Sampling.MaxTokens == nil {
		t.Errorf("names %v, parser %q, sampling %v", p.Serve.ServedModelName, p.Parsers.Reasoning, p.Sampling)
	}
}

// TestOtherFiles checks that writes to other files and of the same content have no outcome,
// that an error has one outcome for each content, and that SIGHUP always has one.
func TestOtherFiles(t *testing.T) {
	s := start(t, still)
	event := func(trigger string) int { n := len(s.Reloads()); s.reloader.reload(trigger); return n }
	s.edit(t, "rename", still+"backned: 1")
	s.expect(t, "a broken profile", event(TriggerFile), "none rejected")
	log := len(s.log.String())
	for i := range 3 {
		writeFile(t, filepath.Join(filepath.Dir(s.profile), "up.log"), strings.Repeat("x", i))
		s.edit(t, "rename", still+"backned: 1")
		s.expect(t, "another file", event(TriggerFile), "")
	}
	if got := s.log.String()[log:]; strings.Contains(got, "profile reload") {
		t.Errorf("logged again: %s", got)
	}
	if got := s.metricValue(t, `vapp_reload_total{class="none",outcome="rejected"}`); got != "1" {
		t.Errorf("counted %s times", got)
	}
	s.expect(t, "SIGHUP", event(TriggerSignal), "none rejected")
	s.edit(t, "rename", still+"backned: 2")
	s.expect(t, "another broken profile", event(TriggerFile), "none rejected")
	s.edit(t, "rename", still)
	s.expect(t, "mended", event(TriggerFile), "none unchanged")
	s.expect(t, "nothing", event(TriggerFile), "")
}

// TestDrainOnIdle checks that without requests a change of policy is applied, logged and
// counted at once.
func TestDrainOnIdle(t *testing.T) {
	s := start(t, still)
	s.edit(t, "rename", still+`scheduler: policy: "priority"`)
	s.reloader.reload(TriggerFile)
	r := s.latest(t, Applied)
	if r.Class != "drain" || len(s.Reloads()) != 1 || !strings.Contains(s.log.String(), "class=drain outcome=applied") {
		t.Errorf("%+v\n%s", s.Reloads(), s.log)
	}
	if got := s.metricValue(t, `vapp_reload_total{class="drain",outcome="applied"}`); got != "1" {
		t.Errorf("counted %s times", got)
	}
	if w := s.audit.waiting(); w != nil {
		t.Errorf("waiting: %+v", w)
	}
}

// TestKeysOfBrokenProfile checks that the keys of a rejected profile are revoked and, if the
// list is valid, added, and that such a profile never removes the guard.
func TestKeysOfBrokenProfile(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		want     []string
	}{
		"another field":           {`["a", "b"]`, `serve: apiKeys: ["b", "c"], backned: 1`, []string{"b", "c"}},
		"a value out of bounds":   {`["a", "b"]`, `serve: {apiKeys: ["a"], port: -1}`, []string{"a"}},
		"a structural edit":       {`["a", "b"]`, `serve: {apiKeys: ["a"], host: "127.0.0.2"}`, []string{"a"}},
		"an element is wrong":     {`["a", "b"]`, `serve: apiKeys: ["a", "c", 5]`, []string{"a"}},
		"every element is wrong":  {`["a", "b"]`, `serve: apiKeys: [{fiel: "a"}]`, nil},
		"an empty list":           {`["a", "b"]`, `serve: apiKeys: [], backned: 1`, []string{"a", "b"}},
		"no list":                 {`["a", "b"]`, `backned: 1`, []string{"a", "b"}},
		"no CUE":                  {`["a", "b"]`, `serve: apiKeys: ["a"`, []string{"a", "b"}},
		"no list in a good one":   {`["a", "b"]`, ``, []string{"a", "b", "c", ""}},
		"a template that is none": {`["a", "b"]`, `serve: apiKeys: ["b"], parsers: chatTemplate: "{% if"`, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, still+"serve: apiKeys: "+c.from)
			s.edit(t, "rename", still+c.to)
			s.reloader.reload(TriggerFile)
			s.takes(t, name, c.want...)
		})
	}
}

// TestKeysOfForbiddenProfile checks that a key list which the policy forbids, since it has
// keys in clear text, revokes keys but adds none.
func TestKeysOfForbiddenProfile(t *testing.T) {
	s := start(t, still+`serve: apiKeys: ["a", "b"]`)
	writeFile(t, filepath.Join(filepath.Dir(s.profile), "policy.cue"), "package profiles\nserve: apiKeys: [...{file!: string}]\n")
	s.edit(t, "rename", still+`serve: apiKeys: ["b", "c"]`)
	n := len(s.Reloads())
	s.reloader.reload(TriggerFile)
	s.takes(t, "a list that a policy forbids", "b")
	s.expect(t, "a list that a policy forbids", n, "none rejected, live applied")
}

// TestKeyFileBesideBrokenProfile checks that the last named file of keys stays in use while
// the profile is no valid CUE or cannot be read.
func TestKeyFileBesideBrokenProfile(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	for name, broken := range map[string]func(*server, *disk){
		"no CUE":        func(s *server, _ *disk) { s.edit(t, "rename", "serve: {") },
		"gone":          func(s *server, _ *disk) { os.Remove(s.profile) },
		"out of files":  func(s *server, d *disk) { d.fail(s.profile, syscall.EMFILE) },
		"disk is wrong": func(s *server, d *disk) { d.fail(s.profile, syscall.EIO) },
	} {
		t.Run(name, func(t *testing.T) {
			writeFile(t, keys, "a\nb\n")
			d := &disk{}
			s := start(t, still+`serve: apiKeys: [{file: "`+keys+`"}, "c"]`, onDisk(d))
			broken(s, d)
			s.reloader.reload(TriggerFile)
			s.takes(t, "a broken profile", "a", "b", "c")
			writeFile(t, keys, "b\n")
			n := len(s.Reloads())
			s.reloader.reload(TriggerFile)
			s.takes(t, "a key was deleted", "b", "c")
			s.expect(t, "the error is not reported again", n, "live applied")
			if got := s.metricValue(t, `vapp_profile_stale_seconds{part="keys"}`); got == "0" {
				t.Error("the gauge says that keys are as the profile says")
			}
			if !strings.Contains(s.log.String(), noteUnread) {
				t.Errorf("the log does not say what became of keys:\n%s", s.log)
			}
		})
	}
}

// TestUnreadableKeyFile checks that a file of keys that cannot be read keeps its keys, is
// logged once, counted each time, and read again after growing pauses.
func TestUnreadableKeyFile(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	writeFile(t, keys, "a\nb\n")
	d := &disk{}
	s := start(t, still+`serve: apiKeys: [{file: "`+keys+`"}]`, onDisk(d))
	writeFile(t, keys, "b\n")
	for _, err := range []error{syscall.EMFILE, syscall.EIO} {
		d.fail(keys, err)
		n := len(s.Reloads())
		for range 4 {
			s.reloader.reload(TriggerFile)
			s.reloader.scheduled = false // as after the pause
		}
		s.expect(t, err.Error(), n, "live rejected")
	}
	s.takes(t, "unreadable", "a", "b")
	if d.waits[0] != firstRetry || d.waits[1] != 2*firstRetry || d.waits[7] != lastRetry {
		t.Errorf("pauses %v", d.waits)
	}
	if got := s.metricValue(t, `vapp_profile_read_failures_total{part="keys"}`); got != "8" {
		t.Errorf("%s failures counted", got)
	}
	d.fail(keys, nil)
	s.reloader.scheduled = true
	d.later[len(d.later)-1]() // end of the pause
	s.eventually(t, "the key is revoked", func() bool { return !s.accepts(t, "a") })
	s.takes(t, "readable again", "b")
	if got := s.metricValue(t, `vapp_profile_stale_seconds{part="keys"}`); got != "0" {
		t.Errorf("stale for %s s", got)
	}
}

// TestKeyFileGone checks that the keys of a missing or empty file are revoked after
// missingGrace, and that the guard stays.
func TestKeyFileGone(t *testing.T) {
	for name, end := range map[string]func(string){
		"missing": func(f string) { os.Remove(f) },
		"empty":   func(f string) { _ = os.Truncate(f, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			keys := filepath.Join(t.TempDir(), "keys")
			writeFile(t, keys, "a\n")
			d := &disk{}
			s := start(t, still+`serve: apiKeys: [{file: "`+keys+`"}]`, onDisk(d))
			end(keys)
			s.reloader.reload(TriggerFile)
			s.takes(t, "for a moment", "a")
			d.pass(missingGrace)
			s.reloader.reload(TriggerRetry)
			s.takes(t, "to stay")
			writeFile(t, keys, "c\n")
			s.reloader.reload(TriggerFile)
			s.takes(t, "written again", "c")
		})
	}
}

// TestCertificateBesideBrokenProfile checks that a new certificate is used although the
// profile is rejected, and that unreadable certificate files are read again.
func TestCertificateBesideBrokenProfile(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir, 7)
	named := `serve: tls: {certFile: "` + dir + `/cert.pem", keyFile: "` + dir + `/key.pem"}, `
	d := &disk{}
	s := start(t, still+named, onDisk(d))
	serial := func() int64 { return s.live.Load().cert.Leaf.SerialNumber.Int64() }
	for name, more := range map[string]string{"no CUE": "serve: {", "refused": named + "backned: 1", "structural": named + "memory: blockSize: 32"} {
		s.edit(t, "rename", still+more)
		want := serial() + 1
		certify(t, dir, want)
		d.fail(dir+"/key.pem", syscall.EMFILE)
		s.reloader.reload(TriggerFile)
		if got := s.metricValue(t, `vapp_profile_stale_seconds{part="certificate"}`); got == "0" || serial() != want-1 {
			t.Errorf("%s: stale for %s s with certificate %d", name, got, serial())
		}
		d.fail(dir+"/key.pem", nil)
		s.reloader.reload(TriggerRetry)
		if got := s.metricValue(t, `vapp_profile_stale_seconds{part="certificate"}`); got != "0" || serial() != want {
			t.Errorf("%s: stale for %s s with certificate %d", name, got, serial())
		}
	}
	other := t.TempDir()
	certify(t, other, 99)
	s.edit(t, "rename", still+strings.ReplaceAll(named, dir, other)+"backned: 1")
	s.reloader.reload(TriggerFile)
	if serial() != 99 {
		t.Errorf("other files: certificate %d", serial())
	}
}

// TestStaleProfile checks that the gauge grows while the profile differs from what is in
// effect.
func TestStaleProfile(t *testing.T) {
	d := &disk{}
	s := start(t, still, onDisk(d))
	stale := func() bool { return s.metricValue(t, `vapp_profile_stale_seconds{part="profile"}`) != "0" }
	for _, c := range []struct {
		more string
		want bool
	}{{"backned: 1", true}, {"", false}, {"memory: blockSize: 32", true}, {`serve: servedModelName: ["x"]`, false}} {
		s.edit(t, "rename", still+c.more)
		s.reloader.reload(TriggerFile)
		if stale() != c.want {
			t.Errorf("%q: stale %v", c.more, stale())
		}
	}
}
