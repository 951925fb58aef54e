package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// TestEveryItemIsExplained: for every family each line, part and class has a formula with numbers, and
// those of the ledger give the ledger's bytes.
func TestEveryItemIsExplained(t *testing.T) {
	for _, f := range families {
		p := made(t, on(t, f.model, f.fields, "b200"))
		for _, item := range p.Items() {
			e, err := p.Explain(item)
			if err != nil {
				t.Errorf("%s: %v", f.model, err)
				continue
			}
			if len(e.Steps) == 0 || e.Value == "" || e.Source == "" || !strings.ContainsAny(strings.Join(e.Steps, ""), "0123456789") && !strings.HasPrefix(item, "reserve") && !strings.HasPrefix(item, "mapped") && item != "context" && item != "modules" {
				t.Errorf("%s: %s is explained by %+v", f.model, item, e)
			}
			if n := p.Ledger.Bytes(item); n > 0 && item != "kv" && !strings.HasPrefix(e.Value, plan.Group(n)+" B") {
				t.Errorf("%s: %s is %s, the ledger has %s", f.model, item, e.Value, plan.Group(n))
			}
		}
	}
}

// TestFitOnIsMake: a row of the table equals the plan for that device.
func TestFitOnIsMake(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	fits, not := 0, 0
	for _, f := range families[3:] {
		for _, name := range []string{"t4", "l40s", "a100-80g", "b200"} {
			d, err := devices.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			i := on(t, f.model, f.fields, name)
			q := *i.Profile
			q.MaxModelLen, q.Require = 64<<10, &schema.Require{Concurrency: map[string]schema.Count{">=2": 32 << 10}}
			i.Profile = &q
			row, err := plan.FitOn(i, d.Name)
			if err != nil {
				t.Errorf("%s on %s: %v", f.model, name, err)
				continue
			}
			p, err := plan.Make(i)
			if row.Fits != (err == nil) || row.Fits == (row.Reason != "") {
				t.Errorf("%s on %s: %+v, planned: %v", f.model, name, row, err)
			}
			if not++; err == nil {
				fits++
				not--
				if row.KV != p.Ledger.Bytes("kv") || row.Max != p.Options.MaxModelLen || row.AtMax < 1 {
					t.Errorf("%s on %s: %+v", f.model, name, row)
				}
			}
			q.MaxModelLen, q.Require = schema.Auto, nil
			auto, err := plan.Make(i)
			var short *plan.DoesNotFitError
			if errors.As(err, &short) && row.Longest != 0 || err == nil && row.Longest != auto.Options.MaxModelLen {
				t.Errorf("%s on %s: the longest is %d: %v", f.model, name, row.Longest, err)
			}
		}
	}
	if fits < 4 || not < 4 {
		t.Errorf("only %d fit and %d do not", fits, not)
	}
}

func FuzzParseGoal(f *testing.F) {
	for _, s := range []string{"16x32K", "1x1", "x", "16x", "0x5", "-1x5", "99999999999x1", "4K", "1x4.5K", "1xauto", "8 images of 1120", "16x32K with 1 image", "4K with 2 images of 1K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := plan.ParseGoal(s)
		if err == nil && (g.Seqs < 1 || g.Seqs > 1<<20 || g.Tokens < min(1, 1-g.Images) || g.Tokens > 1<<30 || g.Images < 0 || g.Images > 1024 || g.ImageTokens < 0 || g.ImageTokens > 1<<20) {
			t.Errorf("%q is %+v", s, g)
		}
		if again, wrong := plan.ParseGoal(g.String()); err == nil && (wrong != nil || again != g) {
			t.Errorf("%q is written as %q: %+v, %v", s, g, again, wrong)
		}
		if err != nil && (len(err.Error()) > 2*len(s)*4+200 || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q: %v", s, err)
		}
	})
}

// TestFitLimits: where maxNumSeqs limits a row, a larger one carries more; where memory does, it does
// not. A longest sequence that memory limits grows with memory.
func TestFitLimits(t *testing.T) {
	const model = "meta-llama/Llama-3.2-1B"
	row := func(device, fields string, more int64) plan.Row {
		i := on(t, model, fields, device)
		i.Facts.TotalBytes += more
		r, err := plan.FitOn(i, device)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const few, many = `scheduler: maxNumSeqs: 32`, `scheduler: maxNumSeqs: 40`
	a, b := row("a100-80g", few, 0), row("a100-80g", many, 0)
	if a.Limit4K != plan.ByMaxNumSeqs || b.At4K <= a.At4K {
		t.Errorf("4K: %s, %d with 32, %d with 40", a.Limit4K, a.At4K, b.At4K)
	}
	if a.LimitMax != plan.ByMemory || b.AtMax > a.AtMax {
		t.Errorf("max: %s, %d with 32, %d with 40", a.LimitMax, a.AtMax, b.AtMax)
	}
	if a.LimitLongest != plan.ByModel || a.Longest != 131072 {
		t.Errorf("longest: %s, %d", a.LimitLongest, a.Longest)
	}
	f := row("a100-80g", `memory: kvCache: "8GiB", scheduler: maxNumSeqs: 1024`, 0)
	if same := row("a100-80g", fmt.Sprintf(`memory: kvCache: "8GiB", scheduler: maxNumSeqs: %d`, f.At4K), 0); same.At4K != f.At4K || same.Limit4K != plan.ByMemory {
		t.Errorf("as many run as fit: %d, %s", same.At4K, same.Limit4K)
	}
	const share = `memory: utilization: 0.3`
	c, d := row("l4", share, 0), row("l4", share, 1<<30)
	if c.LimitLongest != plan.ByMemory || d.Longest <= c.Longest {
		t.Errorf("longest: %s, %d, with 1 GiB more %d", c.LimitLongest, c.Longest, d.Longest)
	}
	if e := row("l4", `maxModelLen: "16K"`, 0); e.Limit32K != plan.ByMaxModelLen || e.At32K != 0 || e.Limit4K == plan.ByMaxModelLen {
		t.Errorf("32K of 16K: %s, %d; 4K: %s", e.Limit32K, e.At32K, e.Limit4K)
	}
	if e := row("l4", `memory: utilization: 0.05`, 0); e.Fits || e.LimitLongest != "" || e.Limit4K != "" || e.LimitMax != "" {
		t.Errorf("nothing fits, and limits are %q %q %q", e.LimitLongest, e.Limit4K, e.LimitMax)
	}
	if e := row("a100-80g", `scheduler: chunkedPrefill: false, scheduler: maxNumBatchedTokens: 4096`, 0); e.LimitLongest != plan.ByStep || e.Longest != 4096 {
		t.Errorf("without chunks: %s, %d", e.LimitLongest, e.Longest)
	}
}
