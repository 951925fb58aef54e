package appliance

import (
	"context"
	"errors"

	"vapp.dev/appliance/auditlog"
	"vapp.dev/schema"
)

// openAudit returns the audit log of a profile; nil: it has none. The file is opened with the first entry.
func (a *Appliance) openAudit(p *schema.Profile) *auditlog.Log {
	c := p.Log.Audit
	if c == nil {
		return nil
	}
	return auditlog.New(p.Path(c.File), auditLimits(c), func(err error) {
		if err == nil {
			a.log.Info("audit log: entries are written again", "file", c.File)
			return
		}
		a.log.Error("audit log: an entry was not written; serving goes on, vapp_audit_lost_total counts, and the next entry is tried again", "file", c.File, "error", err)
	})
}

func auditLimits(c *schema.Audit) auditlog.Limits {
	return auditlog.Limits{MaxBytes: int64(c.MaxSize), Keep: c.Keep}
}

// state returns what is in force.
func (a *Appliance) state() auditlog.State {
	hash, _ := a.audit.inForce()
	return auditlog.State{Profile: hash, Plan: a.prepared().planDigest}
}

// note adds an event to the audit log.
func (a *Appliance) note(e auditlog.Entry) {
	if a.auditLog == nil {
		return
	}
	if e.At.IsZero() {
		e.At = a.reloader.now()
	}
	a.auditLog.Add(e)
}

// noteReload adds a reload to the audit log.
func (a *Appliance) noteReload(o Reload) {
	e := auditlog.Entry{
		At: o.At, Event: auditlog.Reload, Trigger: o.Trigger, Class: o.Class, Outcome: string(o.Outcome), After: a.state(),
		Changes: o.Changes, Pending: o.Pending, Error: o.Error, Note: o.Note, Lost: o.Lost,
	}
	if o.Hash != e.After.Profile {
		e.Newest = o.Hash
	}
	a.note(e)
}

// noteStop adds the end of the server to the audit log, and closes it. After it nothing is in force.
func (a *Appliance) noteStop(err error) {
	e := auditlog.Entry{Event: auditlog.Stop, Outcome: "stopped"}
	if err != nil {
		e.Outcome, e.Error = "failed", err.Error()
		if errors.Is(err, context.Cause(a.hard)) { // of Abort
			e.Outcome = "aborted"
		}
	}
	a.note(e)
	if a.auditLog != nil {
		_ = a.auditLog.Close() // an error of the last entry was reported
	}
}

// lostEntries returns the number of entries that the audit log could not write.
func (a *Appliance) lostEntries() int64 {
	if a.auditLog == nil {
		return 0
	}
	return a.auditLog.Lost()
}
