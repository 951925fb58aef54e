package grammar

import (
	"errors"
	"testing"
)

// TestStore checks that usage never exceeds the budget, and that unused grammars are evicted, the
// oldest first.
func TestStore(t *testing.T) {
	c := store{budget: 100, byKey: map[Spec]*Grammar{}}
	made := map[string]*Grammar{}
	for _, step := range []struct {
		do   string
		name string
		n    int64
		err  error
		used int64
		kept string
	}{
		{"make", "a", 40, nil, 40, "a"},
		{"make", "b", 30, nil, 70, "ab"},
		{"make", "c", 40, ErrBusy, 70, "ab"},  // both are in use
		{"take", "", 30, nil, 100, "ab"},      // the states of a reply
		{"release", "b", 0, nil, 100, "ab"},   // kept for the next
		{"make", "c", 31, ErrBusy, 100, "ab"}, // evicting b's 30 would not suffice, so b stays
		{"make", "c", 25, nil, 95, "ac"},
		{"give", "", 30, nil, 65, "ac"},
		{"release", "a", 0, nil, 65, "ac"},
		{"release", "c", 0, nil, 65, "ac"},
		{"get", "a", 0, nil, 65, "ca"},
		{"make", "d", 50, nil, 90, "ad"}, // evicts c, which was used before a
		{"make", "a", 10, nil, 100, "da"},
		{"release", "a", 0, nil, 100, "da"},
		{"charge", "d", 10, nil, 100, "d"}, // evicts the second a
		{"charge", "d", 5, ErrBusy, 105, "d"},
	} {
		var err error
		switch step.do {
		case "make":
			if err = c.alloc(step.n); err == nil {
				if old := made[step.name]; old != nil {
					made["old "+step.name] = old
				}
				made[step.name] = &Grammar{spec: Spec{Source: step.name}, size: step.n, uses: 1}
				c.put(made[step.name])
			}
		case "take":
			err = c.alloc(step.n)
		case "give":
			c.dealloc(step.n)
		case "get":
			made[step.name] = c.get(Spec{Source: step.name})
		case "charge":
			err = c.charge(made[step.name], step.n, step.n)
		case "release":
			c.release(made[step.name])
		}
		kept := ""
		for _, s := range c.order {
			kept += s.Source
		}
		if !errors.Is(err, step.err) || c.used != step.used || kept != step.kept {
			t.Fatalf("%s %s %d: %v, %d bytes, %q kept; want %v, %d, %q", step.do, step.name, step.n, err, c.used, kept, step.err, step.used, step.kept)
		}
	}
}

// TestStoreTooLarge checks that a grammar larger than the whole budget gives an *Error with the
// budget in its text.
func TestStoreTooLarge(t *testing.T) {
	c := store{budget: 64 << 20, byKey: map[Spec]*Grammar{}}
	for n, want := range map[int64]string{
		64 << 20: "",
		80 << 20: "regex: it needs 80 MiB of memory, more than the 64 MiB of all grammars; make it smaller",
	} {
		got := ""
		if err := c.fits(Spec{Kind: "regex"}, n); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
	g := &Grammar{spec: Spec{Kind: "regex"}, size: 60 << 20, uses: 1}
	if err := c.charge(g, 70<<20, 10<<20); err == nil || errors.Is(err, ErrBusy) {
		t.Errorf("a state that grew over the budget alone: %v", err)
	}
}
