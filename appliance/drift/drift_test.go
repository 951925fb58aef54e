package drift

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func measure(kind string, planned, measured int64) *Measure {
	return &Measure{Kind: kind, Item: kind, Planned: planned, Measured: &measured, At: now.Add(-time.Second)}
}

// TestJudge checks each kind of drift alone: its finding, what it says and its remedy.
func TestJudge(t *testing.T) {
	hour := now.Add(-time.Hour)
	for _, c := range []struct {
		kind, what, remedy string
		facts              Facts
	}{
		{"", "", "", Facts{}},
		{ProfilePending, "maxModelLen: 256 → 128 (structural)", "restart the server", Facts{Pending: &Restart{Needed: true, Since: hour, Changes: []string{"maxModelLen: 256 → 128 (structural)"}}}},
		{ProfilePending, "serve.metricsCompat: false → true (restart)", "restart the server to apply the change, or take it back", Facts{Pending: &Restart{Needed: true, Since: hour, Changes: []string{"serve.metricsCompat: false → true (restart)"}}}},
		{ProfilePending, "x", "the engine is being replaced (beside)", Facts{Pending: &Restart{Since: hour, Changes: []string{"x"}, Way: "beside"}}},
		{ProfilePending, "x", "do not restart yet", Facts{Pending: &Restart{Needed: true, Since: hour, Changes: []string{"x"}, Error: "does not fit"}}},
		{ProfilePending, "x", "wait: ", Facts{Pending: &Restart{Since: hour, Changes: []string{"x"}}}},
		{ProfileInvalid, "p.cue:1:1: no", "vapp vet p.cue", Facts{Invalid: &Trouble{hour, "p.cue:1:1: no"}}},
		{Keys, "keys: no such file", "serve.apiKeys", Facts{Keys: &Trouble{hour, "keys: no such file"}}},
		{Certificate, "no key", "serve.tls", Facts{Certificate: &Trouble{hour, "no key"}}},
		{Memory, "kv has 9 bytes, planned 8", "report it", Facts{Arenas: []Measure{*measure(Memory, 7, 7), {Kind: Memory, Item: "kv", Planned: 8, Measured: &[]int64{9}[0]}}}},
		{"", "", "", Facts{RSS: measure(RSS, 10, 10), Threads: measure(Threads, 3, 1)}},
		{RSS, "takes 11 bytes of memory, planned 10", "memory.kvCache", Facts{RSS: measure(RSS, 10, 11)}},
		{Threads, "4 threads, planned 3", "ulimit -u", Facts{Threads: measure(Threads, 3, 4)}},
		{"", "", "", Facts{RSS: &Measure{Kind: RSS, Planned: 10}}}, // not measured
		{"", "", "", Facts{Device: &DeviceMemory{Total: 100, Free: 10, Own: 70, Plan: 80}}},
		{Device, "other processes take 25 bytes of the device, and a server of this plan needs 80 of 100", "stop the other processes", Facts{Device: &DeviceMemory{Total: 100, Free: 5, Own: 70, Plan: 80}}},
		{Audit, "a.log cannot be written", "free space", Facts{AuditFailed: true, AuditFile: "a.log"}},
	} {
		c.facts.At, c.facts.Declared.File = now, "p.cue"
		r := Judge(c.facts)
		var kinds, drifting []string
		for _, d := range r.Findings {
			if kinds = append(kinds, d.Kind); !d.Drift {
				continue
			}
			drifting = append(drifting, d.Kind)
			if !strings.Contains(d.What, c.what) || !strings.Contains(d.Remedy, c.remedy) {
				t.Errorf("%s: %q, remedy %q", d.Kind, d.What, d.Remedy)
			}
			if d.Since != nil && d.Age != 3600 {
				t.Errorf("%s: age %v", d.Kind, d.Age)
			}
		}
		if !slices.Equal(kinds, Kinds()) {
			t.Errorf("%s: findings %v", c.kind, kinds)
		}
		if got := strings.Join(drifting, " "); got != c.kind || r.Drift != (c.kind != "") {
			t.Errorf("%q drifts (%v), want %q", got, r.Drift, c.kind)
		}
		measured := 0
		for _, m := range r.Measures {
			if m.Drift {
				measured++
			}
		}
		if want := slices.Contains([]string{Memory, RSS, Threads, Device}, c.kind); (measured == 1) != want {
			t.Errorf("%s: %d measures drift", c.kind, measured)
		}
	}
}
