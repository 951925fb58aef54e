package drift

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Facts are what Judge decides from.
type Facts struct {
	At               time.Time
	Phase, Why       string
	Version          string
	Declared         Declared
	InForce          InForce
	Fields           []Field // without Drift
	Pending          *Restart
	Invalid          *Trouble // the profile in the files is rejected
	Keys             *Trouble
	Certificate      *Trouble
	AuditFailed      bool
	AuditFile        string
	Arenas           []Measure // without Drift and Age
	RSS, Threads     *Measure
	Device           *DeviceMemory // nil: the device does not say it
	DeviceMeasuredAt time.Time
}

// Trouble is why files differ from what is in force.
type Trouble struct {
	Since time.Time
	Error string
}

// DeviceMemory is the memory of a device in bytes.
type DeviceMemory struct {
	Total, Free int64 // now
	Own         int64 // what this server took
	Plan        int64 // what a server of this plan takes
}

// others returns what other processes take.
func (m DeviceMemory) others() int64 { return max(0, m.Total-m.Free-m.Own) }

// Judge returns the report of a server.
func Judge(f Facts) Report {
	r := Report{
		At: f.At, Phase: f.Phase, Why: f.Why, Version: f.Version, Declared: f.Declared, InForce: f.InForce,
		Fields: slices.Clone(f.Fields), Measures: slices.Clone(f.Arenas), Restart: f.Pending,
	}
	if r.Fields == nil {
		r.Fields = []Field{}
	}
	for i := range r.Fields {
		r.Fields[i].Drift = r.Fields[i].Class != ""
	}
	if p := r.Restart; p != nil {
		p.Age, p.Remedy = f.age(p.Since), f.restartRemedy()
	}
	var apart []string
	for i := range r.Measures {
		if m := &r.Measures[i]; m.Measured != nil && *m.Measured != m.Planned {
			m.Drift = true
			apart = append(apart, fmt.Sprintf("%s has %d bytes, planned %d", m.Item, *m.Measured, m.Planned))
		}
	}
	for _, m := range []*Measure{f.RSS, f.Threads} {
		if m != nil {
			m.Drift = m.Measured != nil && *m.Measured > m.Planned
			r.Measures = append(r.Measures, *m)
		}
	}
	if d := f.Device; d != nil {
		n := d.others()
		r.Measures = append(r.Measures, Measure{Kind: Device, Item: "used by others", Unit: "bytes", Planned: max(0, d.Total-d.Plan), Measured: &n, At: f.DeviceMeasuredAt, Drift: d.Total-n < d.Plan})
	}
	if r.Measures == nil {
		r.Measures = []Measure{}
	}
	for i := range r.Measures {
		r.Measures[i].Age = f.age(r.Measures[i].At)
	}
	r.Findings = f.findings(apart)
	r.Drift = slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Drift })
	return r
}

// findings returns one finding for each kind, in the order of Kinds.
func (f Facts) findings(arenas []string) []Finding {
	out := make([]Finding, 0, len(Kinds()))
	for _, kind := range Kinds() {
		d := Finding{Kind: kind}
		switch kind {
		case ProfilePending:
			if p := f.Pending; p != nil {
				d = f.since(d, p.Since, strings.Join(p.Changes, "; "), f.restartRemedy())
			}
		case ProfileInvalid:
			d = f.trouble(d, f.Invalid, fmt.Sprintf("correct the profile: `vapp vet %s` shows every problem; the last valid one stays in force", f.Declared.File))
		case Keys:
			d = f.trouble(d, f.Keys, "correct serve.apiKeys or restore its files; they are read again by themselves, at once on SIGHUP")
		case Certificate:
			d = f.trouble(d, f.Certificate, "install a certificate with its key in the files of serve.tls; the last pair stays in force until then")
		case Memory:
			if len(arenas) > 0 {
				d = found(d, strings.Join(arenas, "; "), "this is an error of vapp, because arenas are planned to the byte: report it with the output of `vapp plan --json`")
			}
		case RSS:
			if m := f.RSS; m != nil && m.Drift {
				d = found(d, fmt.Sprintf("the process takes %d bytes of memory, planned %d", *m.Measured, m.Planned), "lower memory.kvCache or serve.limits by the difference and restart, or give the machine more memory, before the system ends the process")
			}
		case Threads:
			if m := f.Threads; m != nil && m.Drift {
				d = found(d, fmt.Sprintf("the process has %d threads, planned %d", *m.Measured, m.Planned), "look for a slow disk or network file system, on which threads block; raise the limit of threads (ulimit -u, TasksMax of systemd) if there is one")
			}
		case Device:
			if m := f.Device; m != nil && m.Total-m.others() < m.Plan {
				d = found(d, fmt.Sprintf("other processes take %d bytes of the device, and a server of this plan needs %d of %d", m.others(), m.Plan, m.Total), "stop the other processes before the next restart, which would not fit, or lower memory.utilization")
			}
		case Audit:
			if f.AuditFailed {
				d = found(d, "the audit log "+f.AuditFile+" cannot be written; the server's log has the reason", "free space on its disk or correct log.audit.file; the next entry is tried again")
			}
		}
		out = append(out, d)
	}
	return out
}

// restartRemedy returns what to do about changes that wait.
func (f Facts) restartRemedy() string {
	switch p := f.Pending; {
	case p.Error != "":
		return "do not restart yet, the new profile would be refused: correct " + f.Declared.File + " by the error, or take the change back"
	case p.Way != "":
		return "wait: the engine is being replaced (" + p.Way + ")"
	case !p.Needed:
		return "wait: the change takes effect when the running requests have ended"
	}
	if p := f.Pending; !slices.ContainsFunc(p.Changes, func(c string) bool { return !strings.HasSuffix(c, "(structural)") }) {
		return "restart the server to apply the change, let it replace its engine (reload.structural: \"swap\"), or take the change back in " + f.Declared.File
	}
	return "restart the server to apply the change, or take it back in " + f.Declared.File
}

func (f Facts) trouble(d Finding, t *Trouble, remedy string) Finding {
	if t == nil {
		return d
	}
	return f.since(d, t.Since, t.Error, remedy)
}

func (f Facts) since(d Finding, since time.Time, what, remedy string) Finding {
	d = found(d, what, remedy)
	d.Since, d.Age = &since, f.age(since)
	return d
}

func found(d Finding, what, remedy string) Finding {
	d.Drift, d.What, d.Remedy = true, what, remedy
	return d
}

// age returns the seconds since a time.
func (f Facts) age(since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, f.At.Sub(since).Round(time.Millisecond).Seconds())
}
