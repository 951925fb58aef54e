package appliance

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// edit rewrites the server's profile with other additional fields, in one of several ways
// of changing a file.
func (s *server) edit(t *testing.T, how, more string) {
	t.Helper()
	s.write(t, how, profileText(s.model, more))
}

func (s *server) write(t *testing.T, how, text string) {
	t.Helper()
	if s.edited != nil {
		text = s.edited(text)
	}
	switch how {
	case "in place": // the server may read it while it is empty, and reject that
		if err := os.WriteFile(s.profile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	case "rename":
		writeFile(t, s.profile, text)
	case "symlink":
		dir, err := os.MkdirTemp(filepath.Dir(s.profile), "..")
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "p.cue"), text)
		if err := os.Symlink(filepath.Join(filepath.Base(dir), "p.cue"), s.profile+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(s.profile+".new", s.profile); err != nil {
			t.Fatal(err)
		}
	}
}

// serves reports whether a request with a model's name is answered.
func (s *server) serves(t *testing.T, model string) bool {
	t.Helper()
	r, err := s.ask(context.Background(), model, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// latest waits for a reload with this outcome and returns it.
func (s *server) latest(t *testing.T, want Outcome) Reload {
	t.Helper()
	var r Reload
	s.eventually(t, string(want), func() bool {
		if l := s.Reloads(); len(l) > 0 {
			r = l[0]
		}
		return r.Outcome == want
	})
	return r
}

// waitApplied waits until n reloads have the outcome applied, and returns the newest. A change
// is in effect before its outcome is recorded.
func (s *server) waitApplied(t *testing.T, n int) Reload {
	t.Helper()
	var newest Reload
	s.eventually(t, "the outcomes", func() bool {
		done := slices.DeleteFunc(s.Reloads(), func(r Reload) bool { return r.Outcome != Applied })
		if len(done) == n {
			newest = done[0]
		}
		return len(done) == n
	})
	return newest
}

// TestLiveReload changes the served name while streams run, in every way of changing a
// file. Each change must take effect, and no stream may fail; how long a change takes is logged.
func TestLiveReload(t *testing.T) {
	s := start(t, `serve: servedModelName: ["first"]`)
	wait := s.streams(t, 8)
	for i, how := range []string{"in place", "rename", "symlink", "rename", "symlink", "in place"} {
		name := "name-" + string(rune('a'+i))
		at := time.Now()
		s.edit(t, how, `serve: servedModelName: ["`+name+`", "first"]`)
		s.eventually(t, how, func() bool { return s.serves(t, name) })
		t.Logf("%s: %v", how, time.Since(at))
		if r := s.waitApplied(t, i+1); r.Class != "live" || r.Trigger != TriggerFile {
			t.Errorf("%s: %+v", how, r)
		}
	}
	wait()
	if s.serves(t, "name-a") {
		t.Error("an old name is still served")
	}
}

func TestStructuralReloadIsReported(t *testing.T) {
	s := start(t, "")
	s.edit(t, "rename", `scheduler: maxNumSeqs: 8, serve: servedModelName: ["other"]`)
	if r := s.latest(t, Rejected); !strings.Contains(r.Error, "maxNumSeqs") {
		t.Errorf("two values for one field: %+v", r)
	}
	s.write(t, "rename", strings.Replace(profileText(s.model, `serve: servedModelName: ["other"]`), "maxNumSeqs: 16", "maxNumSeqs: 8", 1))
	r := s.latest(t, Reported)
	if r.Class != "structural" || !strings.Contains(r.Plan, "maxNumSeqs") || !strings.Contains(strings.Join(r.Changes, "\n"), "scheduler.maxNumSeqs") {
		t.Errorf("%+v", r)
	}
	if !s.serves(t, "other") {
		t.Error("the live half of the edit was not applied")
	}
}

// TestStructuralReloadIsRecordedOnce checks that file events without a further change have
// no outcome, and that a signal has one.
func TestStructuralReloadIsRecordedOnce(t *testing.T) {
	s := start(t, "reload: watch: false")
	s.write(t, "rename", strings.Replace(profileText(s.model, "reload: watch: false"), "maxNumSeqs: 16", "maxNumSeqs: 8", 1))
	for i, c := range []struct {
		trigger string
		want    int
	}{{TriggerFile, 1}, {TriggerFile, 1}, {TriggerSignal, 2}} {
		s.reloader.reload(c.trigger) // the only reloads: files are not watched
		if n := len(s.Reloads()); n != c.want {
			t.Errorf("reading %d, for %s: got %d outcomes, want %d", i, c.trigger, n, c.want)
		}
	}
}

// TestSignalTakesPrecedence checks that a signal replaces other pending triggers.
func TestSignalTakesPrecedence(t *testing.T) {
	for _, triggers := range [][]string{{TriggerFile, TriggerSignal}, {TriggerSignal, TriggerFile}, {TriggerSignal, TriggerSignal}} {
		a := &Appliance{kick: make(chan string, 1)}
		for _, by := range triggers {
			a.Reload(by)
		}
		if got := <-a.kick; got != TriggerSignal || len(a.kick) != 0 {
			t.Errorf("%v: read for %s, %d more wait", triggers, got, len(a.kick))
		}
	}
}

func TestBrokenProfileKeepsServing(t *testing.T) {
	s := start(t, "")
	s.edit(t, "rename", `backned: "x"`)
	r := s.latest(t, Rejected)
	if !strings.Contains(r.Error, "p.cue:") || !strings.Contains(r.Error, "backend") {
		t.Errorf("the error has no place or no nearest name: %s", r.Error)
	}
	if !s.serves(t, s.modelName()) {
		t.Error("the server does not answer after a broken profile")
	}
	if err := os.Remove(s.profile); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "the missing file is noticed", func() bool { return strings.Contains(s.Reloads()[0].Error, "no such file") })
	s.edit(t, "rename", `serve: servedModelName: ["mended"]`)
	s.eventually(t, "mended", func() bool { return s.serves(t, "mended") })
}

func TestSignalAndAudit(t *testing.T) {
	s := start(t, "reload: watch: false")
	s.Reload(TriggerSignal)
	if r := s.latest(t, Unchanged); r.Trigger != TriggerSignal {
		t.Errorf("%+v", r)
	}
	s.edit(t, "rename", `reload: watch: false, serve: apiKeys: ["secret-word"]`)
	s.Reload(TriggerSignal)
	s.latest(t, Applied)
	if code := s.status(t, "/v1/models"); code != http.StatusUnauthorized {
		t.Errorf("/v1/models without the new key: %d", code)
	}
	r, err := http.NewRequest("GET", s.url+"/admin/reloads", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret-word")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct{ Reloads []Reload }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || len(got.Reloads) != 2 {
		t.Fatalf("%+v: %v", got, err)
	}
	for _, c := range got.Reloads[0].Changes {
		if strings.Contains(c, "secret-word") {
			t.Error("the audit shows a key")
		}
	}
	if strings.Contains(s.log.String(), "secret-word") {
		t.Error("the log shows a key")
	}
}

// TestKeyFile changes a file of keys.
func TestKeyFile(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	writeFile(t, keys, "one\n")
	s := start(t, `serve: apiKeys: [{file: "`+keys+`"}]`)
	with := func(key string) int {
		r, err := http.NewRequest("GET", s.url+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := with("one"); got != http.StatusOK {
		t.Fatalf("first key: %d", got)
	}
	writeFile(t, keys, "two\n")
	s.eventually(t, "the new key", func() bool { return with("two") == http.StatusOK })
	if got := with("one"); got != http.StatusUnauthorized {
		t.Errorf("old key: %d", got)
	}
}

// TestKeyFileOfReload changes a file of keys that a reload added to the profile.
func TestKeyFileOfReload(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	writeFile(t, keys, "one\n")
	s := start(t, "")
	s.edit(t, "rename", `serve: apiKeys: [{file: "`+keys+`"}]`)
	s.latest(t, Applied)
	writeFile(t, keys, "two\n")
	s.eventually(t, "the changed key file", func() bool { return len(s.Reloads()) == 2 && s.Reloads()[0].Outcome == Applied })
}

// metricValue returns the value of a metric without labels in GET /metrics.
func (s *server) metricValue(t *testing.T, name string) string {
	_, text := s.get(t, "/metrics")
	for line := range strings.Lines(text) {
		if v, is := strings.CutPrefix(line, name+" "); is {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// TestITLTargetReload sets, changes and removes scheduler.itlTarget under load.
func TestITLTargetReload(t *testing.T) {
	s := start(t, "")
	wait := s.streams(t, 8)
	for i, c := range []struct{ text, want string }{
		{`scheduler: itlTarget: "1ms"`, "0.001"}, {`scheduler: itlTarget: "1m"`, "60"}, {"", "0"},
	} {
		s.edit(t, "rename", c.text)
		s.eventually(t, c.text, func() bool { return s.metricValue(t, "vapp_itl_target_seconds") == c.want })
		if r := s.waitApplied(t, i+1); r.Class != "live" {
			t.Errorf("%s: %+v", c.text, r)
		}
	}
	wait()
}

// TestDrainClass changes the policy under load. It must take effect when the running
// requests have completed, and requests that arrive meanwhile must be answered.
func TestDrainClass(t *testing.T) {
	s := start(t, "")
	wait := s.streams(t, 8)
	s.edit(t, "rename", `scheduler: policy: "priority"`)
	if r := s.latest(t, Pending); r.Class != "drain" {
		t.Errorf("%+v", r)
	}
	more := s.streams(t, 8)
	wait()
	more()
}
