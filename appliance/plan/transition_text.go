package plan

import (
	"fmt"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// why returns the sentence. differ is why the weights do not stay, obstacle why the engines do not overlap.
func (t *Transition) why(differ error, obstacle string) string {
	s := string(t.Way)
	if t.Overlaps {
		s += ", no gap"
	} else if t.Way == Rebuild {
		s += ", after the running requests"
	}
	both := "both engines"
	if t.KeepsWeights {
		s += fmt.Sprintf(": the weights are the same (%s, kept)", Size(t.Shared))
		both = "both KV caches"
	} else {
		s += ": " + differ.Error()
	}
	if t.Overlaps {
		return s + fmt.Sprintf("; %s fit: %s", both, t.of())
	}
	return s + "; " + obstacle
}

// of returns the peak and the limit: "5.10 of 8.00 GiB".
func (r *Footprint) of() string {
	a, b := Size(r.Peak), Size(r.Limit)
	if n, unit, _ := strings.Cut(a, " "); strings.HasSuffix(b, " "+unit) {
		a = n
	}
	return a + " of " + b
}

// gap returns the gap of a change after which the weights are loaded again, or stay.
func (in ChangeInputs) gap(keeps bool) Gap {
	g := Gap{Drain: in.DrainTimeout}
	weights := backend.Weights.String()
	bytes := in.New.arenas()
	if keeps {
		bytes -= in.New.Ledger.Bytes(weights)
	} else if was := in.Old.Ledger.Bytes(weights); in.Loaded > 0 && was > 0 {
		g.Load = schema.Duration(float64(in.Loaded) * float64(in.New.Ledger.Bytes(weights)) / float64(was))
		g.Basis = "last load"
		return g
	}
	if !keeps {
		bytes = add(bytes, in.New.Ledger.Bytes(mappedItem))
	}
	if r, err := in.New.ratesOf(); err == nil && r.Read > 0 {
		g.Load, g.Basis = schema.Duration(float64(bytes)/r.Read*1e9), "memory rate"
	}
	return g
}

// String returns the gap in words: "none", "at most 30s until the running requests have ended, then about 4.2 s of load (as the last
// one took)".
func (g Gap) String() string {
	drain := fmt.Sprintf("at most %v until the running requests have ended, then ", g.Drain)
	switch {
	case g == Gap{}:
		return "none"
	case g.Basis == "last load":
		return drain + "about " + timeOf(g.Load.Time().Seconds()) + " of load (as the last one took)"
	case g.Basis == "memory rate":
		return drain + "at least " + timeOf(g.Load.Time().Seconds()) + " to fill the memory (at its rate)"
	}
	return drain + "the load, whose time is not known"
}

// reported introduces what is not done.
const reported = `reload.structural is "report": the change waits for a restart; "swap" would do this:`

// String returns the change in lines: why, the gap, the memory of both engines, the prefix cache.
func (t *Transition) String() string {
	out := &text{width: TextWidth}
	if t.Mode == schema.Report {
		out.pair("mode", reported)
	}
	out.pair("change", t.Why)
	out.pair("gap", t.Gap.String())
	if out.pair("memory", t.Footprint.String()); t.Host != nil {
		out.pair("host", t.Host.String())
	}
	out.pair("prefixes", t.PrefixCache)
	return out.b.String()
}

// String returns the figures: "old 2.0 GiB + new 3.0 GiB − shared 1.0 GiB …".
func (r *Footprint) String() string {
	s := fmt.Sprintf("old %s, new %s", Size(r.Old), Size(r.New))
	if r.Shared > 0 {
		s += fmt.Sprintf(", of them %s shared", Size(r.Shared))
	}
	s += ": both " + Size(r.Peak)
	if r.Limit == 0 {
		return s + "; the limit is unknown"
	}
	return s + fmt.Sprintf(" of %s (%s)", Size(r.Limit), r.Rule)
}
