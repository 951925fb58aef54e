// Package backendtest is the test suite for backends: ops compared with kernels/ref, bit
// equality of rows, sampling, and the rules about memory.
//
// It must not know a particular backend: it uses one only through backend.Opener. Start
// reading at Suite in this file and rig in rig.go.
//
// Inputs come from Embed on tables that the tests pack; outputs are read through
// backend.Inspector. A case that a backend rejects with backend.ErrUnsupported is skipped;
// any other error fails.
package backendtest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// The formats of weights and pages.
var (
	weightFormats = []kernels.Format{
		kernels.F32, kernels.F16, kernels.BF16, kernels.Q8_0, kernels.Q4_0, kernels.Q4_1, kernels.Q5_0, kernels.Q5_1,
		kernels.Q2_K, kernels.Q3_K, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K, kernels.IQ4_NL, kernels.I4,
		kernels.IQ4_XS, kernels.IQ3_S, kernels.IQ2_XS, kernels.TQ1_0,
	}
	// alikeFormats differ from one of weightFormats in how a block is unpacked: Errors has them.
	alikeFormats = []kernels.Format{kernels.IQ3_XXS, kernels.IQ2_XXS, kernels.IQ2_S, kernels.IQ1_S, kernels.IQ1_M, kernels.TQ2_0}
	kvFormats    = []kernels.Format{kernels.F32, kernels.F16, kernels.BF16}
)

// Suite is the suite for one backend.
type Suite struct {
	Opener backend.Opener
	// MatrixTolerance is for backends with matrix units. They round inputs to 16 bits, and
	// the order of a row's sum may depend on the other rows of the step. Their rows are
	// compared within bounds, those of other backends bit by bit.
	MatrixTolerance bool
	// CutSums is for devices whose matrix units keep ref.SumBitsE4M3 bits of sums of products of E4M3.
	// Their products of 8-bit floats are compared within ref.SumErrorE4M3, those of other backends, and of
	// emulations, as sums in float32.
	CutSums bool
	// Settings are used by Part.
	Settings backend.Settings
	// Every is how many cases of a part there are for each one that Run runs; nil, 0: one. With the
	// tag soak all cases run.
	Every func(backend.Settings) int
}

// subject is the backend under test, with settings, on this machine.
type subject struct {
	matrixTolerance bool
	cutSums         bool
	every           int // every n-th case of a part runs; 0: all
	cases           int // seen so far
	opener          backend.Opener
	settings        backend.Settings
	facts           backend.Facts
	layout          backend.Layout
	oracles         oracles
}

// Run runs the suite for a backend whose rows have the same bits in every step.
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
			sub.matrixTolerance, sub.cutSums, sub.oracles = u.MatrixTolerance, u.CutSums, known
			if u.Every != nil && !soak {
				sub.every = u.Every(s)
			}
			for _, p := range parts() {
				t.Run(p.name, func(t *testing.T) { p.test(sub, t) })
			}
		})
	}
}

// Part runs every n-th case of a part of the suite, with u.Settings. It is for backends on
// which all cases take too long for every run.
func (u Suite) Part(t *testing.T, name string, n int) {
	parts := parts()
	i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
	if i < 0 {
		t.Fatalf("the suite has no part %q", name)
	}
	sub := open(t, u.Opener, u.Settings)
	sub.matrixTolerance, sub.cutSums, sub.every, sub.oracles = u.MatrixTolerance, u.CutSums, n, oracles{}
	t.Run(name, func(t *testing.T) { parts[i].test(sub, t) })
}

// Parts returns the names of the suite's parts.
func Parts() (names []string) {
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// run calls t.Run for a case of a part if the case is selected.
func (s *subject) run(t *testing.T, name string, test func(*testing.T)) {
	if s.cases++; s.every > 1 && s.cases%s.every != 1 {
		return
	}
	t.Run(name, test)
}

// withThreads returns the backend under test with another number of threads.
func (s *subject) withThreads(t *testing.T, threads int) *subject {
	sub := *s
	sub.settings.Threads = threads
	layout, err := s.opener.Layout(s.facts, sub.settings)
	check(t, err)
	sub.layout = layout
	return &sub
}

// part is one part of the suite.
type part struct {
	name string
	test func(*subject, *testing.T)
}

// parts returns all parts in order.
func parts() []part {
	return []part{
		{"pack", (*subject).pack},
		{"linear", (*subject).linear},
		{"linear of scaled weights", (*subject).scaled},
		{"linear of long rows", (*subject).linearLong},
		{"linear of parts in several formats", (*subject).parts},
		{"linear of heads", (*subject).headLinear},
		{"experts", (*subject).mixtures},
		{"rows", (*subject).rows},
		{"norms", (*subject).norms},
		{"elements", (*subject).elements},
		{"adapters", (*subject).adapters},
		{"freed values", (*subject).freed},
		{"rope", (*subject).rope},
		{"rope heads", (*subject).ropeHeads},
		{"rope of tempered queries", (*subject).ropeTempered},
		{"rope of latent attention", (*subject).ropeLatent},
		{"rope of grids", (*subject).ropeGrid},
		{"rope of three positions", (*subject).ropeSections},
		{"route", (*subject).route},
		{"conv", (*subject).conv},
		{"delta", (*subject).delta},
		{"attention", (*subject).attention},
		{"attention of more kinds", (*subject).attentionKinds},
		{"attention with rebuilt keys", (*subject).rebuilt},
		{"latent attention", (*subject).latent},
		{"equal", (*subject).equal},
		{"equal with latent attention", (*subject).equalLatent},
		{"tokens", (*subject).tokens},
		{"sample", (*subject).sample},
		{"drafts", (*subject).drafts},
		{"draft positions", (*subject).draftPositions},
		{"pooled patches", (*subject).pooling},
		{"resampled positions", (*subject).resampling},
		{"encoded rows", (*subject).encodedRows},
		{"attention of items", (*subject).attentionItems},
		{"memory", (*subject).memory},
		{"shared weights", (*subject).sharedWeights},
		{"refusals", (*subject).refusals},
	}
}

// open probes the machine. It skips the test with a reason if the machine lacks the variant.
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

// check fails the test for an error, or skips it if the backend returned ErrUnsupported.
func check(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, backend.ErrUnsupported):
		t.Skipf("not run: %v", err)
	case err != nil:
		t.Fatal(err)
	}
}
