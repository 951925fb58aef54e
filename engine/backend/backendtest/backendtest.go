// Package backendtest is the suite every backend passes: ops against
// kernels/ref, bit equality of rows, sampling, and the rules about memory.
//
// It drives a backend through backend.Opener alone: inputs come from Embed on
// tables that the tests pack, outputs are read through backend.Inspector. What a
// backend refuses with backend.ErrUnsupported is reported as not run; any other
// error fails.
package backendtest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// The formats that weights and pages can have.
var (
	weightFormats = []kernels.Format{
		kernels.F32, kernels.F16, kernels.BF16, kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1,
		kernels.Q2_K, kernels.Q3_K, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K, kernels.IQ4_NL,
	}
	kvFormats = []kernels.Format{kernels.F32, kernels.F16, kernels.BF16}
)

// Suite is what one backend is held to.
type Suite struct {
	Opener backend.Opener
	// Near: rows go through matrix units. What is multiplied is rounded to 16 bits, and the order
	// in which a row is summed may depend on what else is in the step: it is held to bounds where
	// rows of other backends are held to their bits.
	MatrixTolerance bool
	// Settings are those that Part runs with.
	Settings backend.Settings
}

// subject is what is tested: a backend with settings on this machine.
type subject struct {
	near     bool
	every    int // of a part's cases which run; 0: all
	cases    int // seen so far
	opener   backend.Opener
	settings backend.Settings
	facts    backend.Facts
	layout   backend.Layout
	oracles  oracles
}

// Run runs the suite for a backend whose rows have the same bits whatever shares their step.
func Run(t *testing.T, o backend.Opener, settings ...backend.Settings) {
	Suite{Opener: o}.Run(t, settings...)
}

// Run runs the suite once for each settings, or once for the zero Settings.
func (u Suite) Run(t *testing.T, settings ...backend.Settings) {
	if len(settings) == 0 {
		settings = []backend.Settings{{}}
	}
	known := oracles{}
	for _, s := range settings {
		title := u.Opener.Name()
		if s.Variant != "" {
			title += "-" + s.Variant
		}
		if s.Activations != "" {
			title += "-" + s.Activations
		}
		t.Run(title, func(t *testing.T) {
			sub := open(t, u.Opener, s)
			sub.near, sub.oracles = u.MatrixTolerance, known
			for _, p := range parts() {
				t.Run(p.name, func(t *testing.T) { p.test(sub, t) })
			}
		})
	}
}

// Part runs a part of the suite, with u.Settings: every n-th of its cases, for backends on which all
// of them take too long for every day.
func (u Suite) Part(t *testing.T, name string, n int) {
	parts := parts()
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
	if i < 0 {
		t.Fatalf("the suite has no part %q", name)
	}
	sub := open(t, u.Opener, u.Settings)
	sub.near, sub.every, sub.oracles = u.MatrixTolerance, n, oracles{}
	t.Run(name, func(t *testing.T) { parts[i].test(sub, t) })
}

// Parts are the names of the suite's parts.
func Parts() (names []string) {
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// run is t.Run for a case of a part, where it is its turn.
func (s *subject) run(t *testing.T, name string, test func(*testing.T)) {
	if s.cases++; s.every > 1 && s.cases%s.every != 1 {
		return
	}
	t.Run(name, test)
}

// part is one of the suite's.
type part struct {
	name string
	test func(*subject, *testing.T)
}

// parts are all of them, in order.
func parts() []part {
	return []part{
		{"pack", (*subject).pack},
		{"linear", (*subject).linear},
		{"linear of scaled weights", (*subject).scaled},
		{"linear of parts in several formats", (*subject).parts},
		{"experts", (*subject).mixtures},
		{"rows", (*subject).rows},
		{"norms", (*subject).norms},
		{"elements", (*subject).elements},
		{"freed values", (*subject).freed},
		{"rope", (*subject).rope},
		{"rope heads", (*subject).ropeHeads},
		{"route", (*subject).route},
		{"conv", (*subject).conv},
		{"delta", (*subject).delta},
		{"attention", (*subject).attention},
		{"attention of more kinds", (*subject).attentionKinds},
		{"attention with rebuilt keys", (*subject).rebuilt},
		{"equal", (*subject).equal},
		{"tokens", (*subject).tokens},
		{"sample", (*subject).sample},
		{"drafts", (*subject).drafts},
		{"draft positions", (*subject).ahead},
		{"memory", (*subject).memory},
		{"refusals", (*subject).refusals},
	}
}

// open probes the machine and skips, in so many words, what it does not have.
func open(t testing.TB, o backend.Opener, s backend.Settings) *subject {
	t.Helper()
	facts, err := o.Probe()
	check(t, err)
	if s.Variant != "" && !slices.Contains(facts.Variants, s.Variant) {
		t.Skipf("not run: variant %s: this machine has %s", s.Variant, strings.Join(facts.Variants, ", "))
	}
	layout, err := o.Layout(facts, s)
	check(t, err)
	return &subject{opener: o, settings: s, facts: facts, layout: layout}
}

// check fails the test for an error, or skips it when the backend refused.
func check(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, backend.ErrUnsupported):
		t.Skipf("not run: %v", err)
	case err != nil:
		t.Fatal(err)
	}
}
