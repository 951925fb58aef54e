package lock

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/appliance/plan"
)

// TestFlagsFor checks that a lock's flags hold until the profile's target is another one.
func TestFlagsFor(t *testing.T) {
	const h100, l4 = "\ttarget: gpu: \"h100\"\n", "\ttarget: gpu: \"l4\"\n"
	for name, c := range map[string]struct {
		locked, now string
		flags, want Flags
		aimed       bool
	}{
		"no target, no flags":   {"", "", Flags{}, Flags{}, false},
		"no target, a flag":     {"", "", Flags{GPU: "a100"}, Flags{GPU: "a100"}, true},
		"memory":                {"", "", Flags{Memory: "8GiB"}, Flags{Memory: "8GiB"}, true},
		"target":                {h100, h100, Flags{}, Flags{}, true},
		"a flag over a target":  {h100, h100, Flags{GPU: "a100"}, Flags{GPU: "a100"}, true},
		"this machine":          {h100, h100, Flags{Here: true}, Flags{Here: true}, false},
		"another target":        {h100, l4, Flags{GPU: "a100"}, Flags{}, true},
		"a target in its place": {"", l4, Flags{GPU: "a100"}, Flags{}, true},
		"no target any more":    {h100, "", Flags{Here: true}, Flags{}, false},
	} {
		in := inputs(t, c.locked)
		in.Flags = c.flags
		l := made(t, in)
		text, err := l.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if l, err = Parse("chat.lock.json", text); err != nil {
			t.Fatal(err)
		}
		if got := l.FlagsFor(inputs(t, c.now).Profile); got != c.want || l.Aimed() != c.aimed {
			t.Errorf("%s: %+v, aimed %v; want %+v, %v", name, got, l.Aimed(), c.want, c.aimed)
		}
	}
}

// TestLacks checks the comparison of a lock with the plan of another machine.
func TestLacks(t *testing.T) {
	locked := made(t, inputs(t, ""))
	for name, c := range map[string]struct {
		change func(p *plan.Plan)
		want   []string
	}{
		"the same":          {func(*plan.Plan) {}, nil},
		"more memory":       {func(p *plan.Plan) { p.Facts.TotalBytes, p.Budget.Bytes = 80<<30, 70<<30 }, nil},
		"more of the KV":    {func(p *plan.Plan) { p.Capacity.Tokens, p.Options.KVBytes = 5000, 99 }, nil},
		"more at a length":  {func(p *plan.Plan) { p.Capacity.Lengths[0].Sequences = 5 }, nil},
		"another ledger":    {func(p *plan.Plan) { p.Ledger[0].Bytes = 1 }, nil},
		"fewer tokens":      {func(p *plan.Plan) { p.Capacity.Tokens = 4095 }, []string{"machine: kv_tokens: locked 4096, now 4095"}},
		"fewer sequences":   {func(p *plan.Plan) { p.Capacity.Lengths[0].Sequences = 3 }, []string{"machine: sequences.1024: locked 4, now 3"}},
		"a length is gone":  {func(p *plan.Plan) { p.Capacity.Lengths = nil }, []string{"machine: sequences.1024: locked 4, now 0"}},
		"another backend":   {func(p *plan.Plan) { p.Backend = "cuda" }, []string{`machine: backend: locked cpu, now cuda`}},
		"another option":    {func(p *plan.Plan) { p.Options.MaxNumSeqs = 7 }, []string{"machine: options.max_num_seqs: locked 0, now 7"}},
		"another decision":  {func(p *plan.Plan) { p.Choices[0].Value = "8" }, []string{`machine: decisions.threads: locked "16", now "8"`}},
		"and which machine": {func(p *plan.Plan) { p.Capacity.Tokens, p.Facts.Cores = 1, 8 }, []string{"machine: kv_tokens: locked 4096, now 1", "machine: cores: locked 16, now 8"}},
	} {
		in := inputs(t, "")
		c.change(in.Plan)
		var got []string
		for _, d := range locked.Lacks(made(t, in)) {
			got = append(got, d.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, strings.TrimSpace(diff))
		}
	}
}
