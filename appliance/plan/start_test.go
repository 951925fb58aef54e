package plan_test

import (
	"fmt"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
)

// TestStart checks the figures for a made profile against plans with them.
func TestStart(t *testing.T) {
	with := func(free, total int64) backend.Facts {
		f := server
		f.FreeBytes, f.TotalBytes = free, total
		return f
	}
	const fields = "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"x\"\n\tmodel: source: \"x\"\n\tscheduler: maxNumSeqs: 8\n%s}\n"
	model := llama1B(t)
	for _, c := range []struct {
		name    string
		facts   backend.Facts
		fields  string
		length  int
		whole   bool
		percent int
	}{
		{"enough", with(60<<30, 64<<30), "", 8192, true, 75},
		{"a catalogue's device, nothing measured", with(0, 64<<30), "", 8192, true, 75},
		{"less than all sequences", with(6<<30, 64<<30), "", 8192, false, 75},
		{"little: more of the memory", with(4600<<20, 64<<30), "", 8192, false, 90},
		{"less: a shorter length", with(4300<<20, 64<<30), "", 4096, false, 90},
		{"a length that the user set", with(9<<30, 64<<30), "\tmaxModelLen: 2048\n", 2048, true, 75},
	} {
		p := profile(t, "p.cue", fmt.Sprintf(fields, c.fields))
		s, err := plan.NewStart(in(p, model, c.facts))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if s.MaxModelLen != c.length || s.Whole != c.whole || s.Percent != c.percent || s.KVCache <= 0 {
			t.Errorf("%s: %+v", c.name, s)
			continue
		}
		p = profile(t, "p.cue", fmt.Sprintf(fields, fmt.Sprintf("\tmaxModelLen: %d\n\tmemory: kvCache: %d\n", s.MaxModelLen, s.KVCache)))
		got := made(t, in(p, model, c.facts))
		if most := s.Memory / 100 * int64(s.Percent); got.Ledger.Total() > most {
			t.Errorf("%s: the ledger has %d bytes, more than %d", c.name, got.Ledger.Total(), most)
		}
		at := got.Capacity.Lengths[len(got.Capacity.Lengths)-1]
		if at.Tokens != s.MaxModelLen || at.Running < 1 || c.whole != (at.Running >= 8) {
			t.Errorf("%s: %+v", c.name, at)
		}
	}
}

// TestStartTooSmall checks that no KV cache is promised where even a short sequence does not fit:
// the plan then says what is missing.
func TestStartTooSmall(t *testing.T) {
	f := server
	f.FreeBytes = 1 << 30
	p := profile(t, "p.cue", "import \"vapp.dev/schema\"\n\nschema.#Profile & {name: \"x\", model: source: \"x\"}\n")
	s, err := plan.NewStart(in(p, llama1B(t), f))
	if err != nil || s.KVCache != 0 || s.MaxModelLen != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	f.FreeBytes, f.TotalBytes = 0, 0
	if s, err = plan.NewStart(in(p, llama1B(t), f)); err != nil || s.KVCache != 1<<30 {
		t.Errorf("memory unknown: %+v, %v", s, err)
	}
}
