package appliance

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vapp.dev/appliance/auditlog"
	"vapp.dev/appliance/drift"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
)

// report returns GET /admin/drift.
func (s *server) report(t *testing.T) (r drift.Report) {
	t.Helper()
	code, text := s.get(t, "/admin/drift")
	if err := json.Unmarshal([]byte(text), &r); err != nil || code != 200 {
		t.Fatalf("%d, %v: %s", code, err, text)
	}
	return r
}

// drifting fails the test unless exactly these kinds drift, in the report and in the metrics. It returns the
// report.
func (s *server) drifting(t *testing.T, want ...string) drift.Report {
	t.Helper()
	r := s.report(t)
	_, metrics := s.get(t, "/metrics")
	for _, f := range r.Findings {
		if should := slices.Contains(want, f.Kind); f.Drift != should {
			t.Errorf("%s drifts: %v, want %v: %s", f.Kind, f.Drift, should, f.What)
		}
		line := `vapp_drift{kind="` + f.Kind + `"} 0`
		if slices.Contains(want, f.Kind) {
			line = strings.TrimSuffix(line, "0") + "1"
		}
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if r.Drift != (len(want) > 0) || len(r.Findings) != len(drift.Kinds()) {
		t.Errorf("drift %v, %d findings", r.Drift, len(r.Findings))
	}
	return r
}

// TestProcessDrift checks memory and threads of the process above their plan.
func TestProcessDrift(t *testing.T) {
	var taken atomic.Pointer[use]
	taken.Store(&use{rss: 1, threads: 1})
	s := start(t, "", func(a *Appliance) { a.process = func() (use, bool) { return *taken.Load(), true } })
	s.drifting(t)
	bytes, threads := s.prepared().Plan.ProcessBytes(s.prepared().Ledger()), s.prepared().Plan.ProcessThreads()
	if total := s.prepared().Ledger().Total(); bytes != total { // reserve is 0
		t.Errorf("the process may take %d bytes, and the ledger has %d", bytes, total)
	}
	taken.Store(&use{rss: bytes, threads: threads})
	s.drifting(t)
	taken.Store(&use{rss: bytes + 1, threads: threads})
	s.drifting(t, drift.RSS)
	taken.Store(&use{rss: 1, threads: threads + 1})
	s.drifting(t, drift.Threads)
}

// sharedGPU is backend ref with a device of whose memory others take a part.
type sharedGPU struct {
	ref.Opener
	others *atomic.Int64
}

func (g sharedGPU) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	d, err := g.Opener.Open(f, s, r)
	return sharedDevice{d, g.others}, err
}

type sharedDevice struct {
	backend.Device
	others *atomic.Int64
}

// deviceBytes and ownBytes are the memory of the device, and what the server takes of it.
const deviceBytes, ownBytes = 64 << 30, 1 << 30

func (d sharedDevice) Memory() (total, before, now int64, err error) {
	return deviceBytes, deviceBytes, deviceBytes - ownBytes - d.others.Load(), nil
}

// TestDeviceDrift checks the memory of the device that others take.
func TestDeviceDrift(t *testing.T) {
	toy := filepath.Join(t.TempDir(), "toy")
	if err := enginetest.WriteLlama(toy, enginetest.Llama{Seed: 3}); err != nil {
		t.Fatal(err)
	}
	others := &atomic.Int64{}
	s := serveOn(t, sharedGPU{others: others}, toy, "", func(a *Appliance) { a.process = func() (use, bool) { return use{}, false } })
	measured := func(r drift.Report) int64 {
		for _, m := range r.Measures {
			if m.Kind == drift.Device {
				return *m.Measured
			}
		}
		return -1
	}
	if n := measured(s.drifting(t)); n != 0 {
		t.Errorf("others take %d bytes", n)
	}
	most := deviceBytes - s.prepared().Ledger().Total()
	others.Store(most)
	s.drifting(t)
	others.Store(most + 1)
	if n := measured(s.drifting(t, drift.Device)); n != most+1 {
		t.Errorf("others take %d bytes, want %d", n, most+1)
	}
}

// TestFileDrift checks a certificate that no longer matches, and a live field that is refused.
func TestFileDrift(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir, 7)
	tls := `serve: tls: {certFile: "` + dir + `/cert.pem", keyFile: "` + dir + `/key.pem"}`
	s := start(t, tls, func(a *Appliance) { a.process = func() (use, bool) { return use{}, false } })
	s.drifting(t)
	writeFile(t, filepath.Join(dir, "cert.pem"), "no certificate")
	s.latest(t, Rejected)
	if r := s.drifting(t, drift.Certificate); r.Findings[3].Since == nil || !strings.Contains(r.Findings[3].What, "serve.tls.certFile") {
		t.Errorf("%+v", r.Findings[3])
	}
	certify(t, dir, 8)
	s.eventually(t, "the certificate is taken", func() bool { return !s.report(t).Drift })
	s.edit(t, "rename", tls+`, parsers: chatTemplate: "{{ x"`)
	s.eventually(t, "the template is refused", func() bool { return s.report(t).Drift })
	s.drifting(t, drift.ProfileInvalid)
}

// TestAuditLog checks the entries of a server's life, and that the log is whole.
func TestAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	more := `log: audit: file: "` + path + `"`
	s := start(t, more)
	s.edit(t, "rename", more+`, sampling: temperature: 0.5`)
	s.latest(t, Applied)
	s.edit(t, "rename", more+`, sampling: temperature: 0.5, serve: metricsCompat: true`)
	s.latest(t, Reported)
	s.drain()
	err := <-s.ended
	s.ended <- nil
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var last auditlog.Entry
	var chain auditlog.Chain
	if err := auditlog.Scan(path, func(r auditlog.Record) {
		if b := chain.Check(r); b != nil {
			t.Error(b)
		}
		last = r.Entry
		got = append(got, strings.TrimRight(r.Entry.Event+" "+r.Entry.Outcome+" "+r.Entry.Trigger+" "+strings.Join(r.Entry.Changes, " "), " "))
		changed := r.Entry.Before.Profile != r.Entry.After.Profile
		if reported := r.Entry.Outcome == string(Reported); (r.Entry.Newest != "") != reported || reported && len(r.Entry.Pending)+len(r.Entry.Changes) == 0 {
			t.Errorf("%s %s: the newest profile is %q", r.Entry.Event, r.Entry.Outcome, r.Entry.Newest)
		}
		if want := r.Entry.Event == auditlog.Start || r.Entry.Event == auditlog.Stop || r.Entry.Outcome == string(Applied); changed != want {
			t.Errorf("%s: another profile is in force: %v", r.Entry.Event, changed)
		}
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"start loading", "ready ready", "reload applied file sampling.temperature: absent → 0.5 (live)",
		`reload reported file serve.metricsCompat: false → true (restart)`, "drain draining", "stop stopped"}
	if !slices.Equal(got, want) || last.After != (auditlog.State{}) {
		t.Errorf("%q, at the end %v", got, last.After)
	}
	if st, err := os.Stat(path); err != nil {
		t.Error(err)
	} else if st.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may use the file: %v", st.Mode())
	}
}

// TestAuditAborted checks the last entry of a server that was aborted.
func TestAuditAborted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	s := start(t, `log: audit: file: "`+path+`"`)
	s.Abort(errors.New("enough"))
	<-s.ended
	s.ended <- nil
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"event":"stop","outcome":"aborted"`) || !strings.Contains(string(text), `"error":"enough"`) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestKeyDrift checks a key file that is gone: for a second its keys stay in force, then none of it is.
func TestKeyDrift(t *testing.T) {
	d := &disk{}
	file := filepath.Join(t.TempDir(), "keys")
	writeFile(t, file, "a\n")
	s := start(t, `reload: watch: false, serve: apiKeys: ["b", {file: "`+file+`"}]`, onDisk(d), func(a *Appliance) {
		a.process = func() (use, bool) { return use{}, false }
	})
	keys := func() drift.Finding { return s.Appliance.drift(false).Findings[2] }
	reload := func() { s.reloader.reload(TriggerFile) }
	if f := keys(); f.Kind != drift.Keys || f.Drift {
		t.Fatalf("%+v", f)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	reload()
	if f := keys(); !f.Drift || !strings.Contains(f.What, file) {
		t.Errorf("gone: %+v", f)
	}
	d.pass(time.Minute)
	reload()
	if f := keys(); s.accepts(t, "a") || !f.Drift || f.Age != 60 {
		t.Errorf("revoked: %+v", f)
	}
	writeFile(t, file, "a\n")
	reload()
	if f := keys(); !s.accepts(t, "a") || f.Drift {
		t.Errorf("restored: %+v", f)
	}
}

// TestRecentKinds checks that the metrics have the kinds of the newest report, and of another one when it is kindsAge old or
// the clock went back.
func TestRecentKinds(t *testing.T) {
	var k recentKinds
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if k.recent(at) != nil {
		t.Error("kinds without a report")
	}
	k.keep(drift.Report{At: at, Findings: []drift.Finding{{Kind: drift.Keys, Drift: true}, {Kind: drift.RSS}}})
	for _, c := range []struct {
		after time.Duration
		kept  bool
	}{{0, true}, {kindsAge - 1, true}, {kindsAge, false}, {-1, false}} {
		if kinds := k.recent(at.Add(c.after)); (kinds != nil) != c.kept || c.kept && (len(kinds) != 2 || !kinds[drift.Keys] || kinds[drift.RSS]) {
			t.Errorf("after %v: %v", c.after, kinds)
		}
	}
}
