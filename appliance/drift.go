package appliance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/drift"
	"vapp.dev/appliance/githead"
	"vapp.dev/appliance/metrics"
	"vapp.dev/schema"
)

// use is what this process takes of the machine.
type use struct{ rss, threads int64 }

// recentUse returns processUse, at most a second old: gateways scrape every 50 ms, and the kernel takes longer to say
// it than all metrics take.
func recentUse() func() (use, bool) {
	var mu sync.Mutex
	var at time.Time // of last; zero: never
	var last use
	var known bool
	return func() (use, bool) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); at.IsZero() || now.Sub(at) >= time.Second {
			at = now
			last, known = processUse()
		}
		return last, known
	}
}

// declared is the newest profile that could be read.
type declared struct {
	profile *schema.Profile
	file    string // for reports; asking the profile takes a twentieth of a scrape
	hash    string
	commit  string
	at      time.Time
}

// declare stores the newest profile, with the commit that is checked out now.
func (a *Appliance) declare(p *schema.Profile, at time.Time) {
	d := &declared{profile: p, file: p.Pos("").File, hash: p.Hash(), at: at}
	if !p.InMemory() {
		d.commit = githead.Of(p.File())
	}
	a.declared.Store(d)
}

// fieldsShown are the fields of the report that do not differ: what decides which model runs, how much it
// takes and where it listens.
var fieldsShown = []string{
	"model.source", "model.revision", "backend", "maxModelLen", "memory.kvCache", "memory.utilization",
	"scheduler.maxNumSeqs", "scheduler.maxNumBatchedTokens", "serve.host", "serve.port",
}

// drift compares what is declared, in force, planned and measured. It is cheap enough for each scrape, except
// for its fields, and waits for no reading of the profile.
func (a *Appliance) drift(fields bool) drift.Report {
	d, now := a.declared.Load(), a.reloader.now()
	hash, since := a.audit.inForce()
	f := drift.Facts{
		At: now, Phase: a.Phase(), Why: a.why(), Version: a.cfg.Version,
		Declared: drift.Declared{File: d.file, Commit: d.commit, Hash: d.hash, ReadAt: d.at},
		InForce:  drift.InForce{Hash: hash, Plan: a.prepared().planDigest, Since: since},
		Pending:  restartOf(a.audit.waiting()),
		Invalid:  a.audit.trouble("profile of the text", "profile"), Keys: a.audit.trouble(metrics.PartKeys, metrics.PartKeys),
		Certificate: a.audit.trouble(metrics.PartCertificate, metrics.PartCertificate),
	}
	if f.Invalid == nil {
		f.Invalid = a.audit.trouble("profile of live fields", "live")
	}
	if a.auditLog != nil {
		f.AuditFailed, f.AuditFile = a.auditLog.Failed(), a.prepared().Profile.Log.Audit.File
	}
	if fields {
		f.Fields = a.fields(d.profile)
	}
	// A load takes more for a while, and so do two engines; what a process takes is not one of several models'.
	if a.loaded() && !a.swaps.running() && a.cfg.member == nil {
		a.measure(&f)
	}
	return drift.Judge(f)
}

// restartOf returns the changes that wait.
func restartOf(w *Waiting) *drift.Restart {
	if w == nil {
		return nil
	}
	return &drift.Restart{Since: w.Since, Changes: w.Changes, Plan: w.Plan, Error: w.Error, Needed: w.Restart, Way: w.Way}
}

// measure adds arenas, memory, threads and the device.
func (a *Appliance) measure(f *drift.Facts) {
	s := a.serving()
	p := s.prepared.Plan
	for _, l := range s.ledger {
		n := l.Actual
		f.Arenas = append(f.Arenas, drift.Measure{Kind: drift.Memory, Item: l.Item, Unit: "bytes", Planned: l.Planned, Measured: &n, At: s.compared})
	}
	f.RSS = &drift.Measure{Kind: drift.RSS, Item: "rss", Unit: "bytes", Planned: p.ProcessBytes(s.prepared.Ledger()), At: f.At}
	f.Threads = &drift.Measure{Kind: drift.Threads, Item: "threads", Unit: "threads", Planned: p.ProcessThreads(), At: f.At}
	if u, ok := a.process(); ok {
		f.RSS.Measured, f.Threads.Measured = &u.rss, &u.threads
	}
	if total, _, now, ok := a.deviceMemory(s); ok {
		f.Device, f.DeviceMeasuredAt = &drift.DeviceMemory{Total: total, Free: now, Own: s.deviceOwn, Plan: s.prepared.Ledger().Total()}, f.At
	}
}

// deviceMemory returns engine.Memory unless the engine is closed.
func (a *Appliance) deviceMemory(s *served) (total, before, now int64, ok bool) {
	a.using.Lock()
	defer a.using.Unlock()
	if s.closed {
		return 0, 0, 0, false
	}
	return s.engine.Memory()
}

// fields returns the fields that differ between the newest profile and the one in force, and those of
// fieldsShown.
func (a *Appliance) fields(newest *schema.Profile) []drift.Field {
	running := a.live.Load().profile
	changes := schema.Diff(running, newest)
	paths := slices.Clone(fieldsShown)
	for _, c := range changes {
		if !slices.Contains(paths, c.Path) {
			paths = append(paths, c.Path)
		}
	}
	var out []drift.Field
	for _, path := range paths {
		f := drift.Field{Path: path, Declared: newest.Value(path), InForce: running.Value(path), Planned: a.plannedValue(path)}
		if at := newest.Pos(path); newest.Says(path) && at.Line > 0 {
			f.File, f.Line = at.File, at.Line
		}
		for _, c := range changes {
			if c.Path == path {
				f.Class = string(c.Class)
			}
		}
		if f.Declared != "" || f.InForce != "" || f.Planned != "" {
			out = append(out, f)
		}
	}
	return out
}

// plannedValue returns what the plan resolved a field to, "" if it resolves none of that name.
func (a *Appliance) plannedValue(path string) string {
	p := a.prepared().Plan
	switch path {
	case "backend":
		return strconv.Quote(p.Backend)
	case "maxModelLen":
		return strconv.Itoa(p.Options.MaxModelLen)
	case "memory.kvCache":
		return strconv.FormatInt(p.Ledger.Bytes("kv"), 10)
	case "scheduler.maxNumSeqs":
		return strconv.Itoa(p.Options.MaxNumSeqs)
	case "scheduler.maxNumBatchedTokens":
		return strconv.Itoa(p.Options.MaxNumBatchedTokens)
	}
	return ""
}

// recentKinds is which kinds of drift the newest report has.
type recentKinds struct {
	mu    sync.Mutex
	at    time.Time
	kinds map[string]bool // read only
}

// kindsAge is the greatest age of the kinds of drift in the metrics, unless /admin/drift was asked since: a report is
// most of what the series of an idle server cost.
const kindsAge = time.Second

// keep stores the kinds of a report and returns them.
func (k *recentKinds) keep(r drift.Report) map[string]bool {
	kinds := make(map[string]bool, len(r.Findings))
	for _, f := range r.Findings {
		kinds[f.Kind] = f.Drift
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.kinds = r.At, kinds
	return kinds
}

// recent returns the kinds that are kept; nil: they are too old, or the clock went back.
func (k *recentKinds) recent(now time.Time) map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if age := now.Sub(k.at); age < 0 || age >= kindsAge {
		return nil
	}
	return k.kinds
}

// driftKinds returns the kinds of drift for the metrics.
func (a *Appliance) driftKinds() map[string]bool {
	if kinds := a.kinds.recent(a.reloader.now()); kinds != nil {
		return kinds
	}
	return a.kinds.keep(a.drift(false))
}

// serveDrift handles GET /admin/drift.
func (a *Appliance) serveDrift(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	report := a.drift(true)
	a.kinds.keep(report)
	if !api.HasKey(r) {
		report = publicDrift(report)
	}
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(report)
}

// publicDrift returns a report without directories and without the commit, for clients without a key.
func publicDrift(r drift.Report) drift.Report {
	r.Why, r.Declared.File, r.Declared.Commit = api.WithoutFolders(r.Why), api.PublicPath(r.Declared.File), ""
	if p := r.Restart; p != nil {
		q := *p
		q.Changes, q.Plan, q.Error, q.Remedy = withoutFolders(p.Changes), api.WithoutFolders(p.Plan), api.WithoutFolders(p.Error), api.WithoutFolders(p.Remedy)
		r.Restart = &q
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		f.What, f.Remedy = api.WithoutFolders(f.What), api.WithoutFolders(f.Remedy)
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		f.File, f.Declared, f.InForce = api.PublicPath(f.File), api.WithoutFolders(f.Declared), api.WithoutFolders(f.InForce)
	}
	return r
}

// trouble returns why the files of a part cannot be used, or differ from what is in force; nil: they can and do
// not. part is a key of reloader.stale, or its first word; what is a key of reloader.reported. A key file that is
// gone for a second has no keys in force, and is still trouble.
func (a *audit) trouble(part, what string) *drift.Trouble {
	a.mu.Lock()
	defer a.mu.Unlock()
	var t *drift.Trouble
	for name, since := range a.stale {
		if (name == part || strings.HasPrefix(name, part+" ")) && (t == nil || since.Before(t.Since)) {
			t = &drift.Trouble{Since: since}
		}
	}
	f, known := a.failed[what]
	switch {
	case known && (t == nil || f.since.Before(t.Since)):
		t = &drift.Trouble{Since: f.since, Error: f.text}
	case known:
		t.Error = f.text
	case t != nil:
		t.Error = fmt.Sprintf("the profile is rejected, and its %s are not taken", part)
	}
	return t
}
