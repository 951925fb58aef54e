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

// subject is what is tested: a backend with settings on this machine.
type subject struct {
	opener   backend.Opener
	settings backend.Settings
	facts    backend.Facts
	layout   backend.Layout
}

// Run runs the suite once for each settings, or once for the zero Settings.
func Run(t *testing.T, o backend.Opener, settings ...backend.Settings) {
	if len(settings) == 0 {
		settings = []backend.Settings{{}}
	}
	for _, s := range settings {
		title := o.Name()
		if s.Variant != "" {
			title += "-" + s.Variant
		}
		if s.Activations != "" {
			title += "-" + s.Activations
		}
		t.Run(title, func(t *testing.T) {
			sub := open(t, o, s)
			t.Run("pack", sub.pack)
			t.Run("linear", sub.linear)
			t.Run("linear of scaled weights", sub.scaled)
			t.Run("linear of parts in several formats", sub.parts)
			t.Run("experts", sub.mixtures)
			t.Run("rows", sub.rows)
			t.Run("norms", sub.norms)
			t.Run("elements", sub.elements)
			t.Run("rope", sub.rope)
			t.Run("rope heads", sub.ropeHeads)
			t.Run("route", sub.route)
			t.Run("conv", sub.conv)
			t.Run("delta", sub.delta)
			t.Run("attention", sub.attention)
			t.Run("attention of more kinds", sub.attentionKinds)
			t.Run("attention with rebuilt keys", sub.rebuilt)
			t.Run("equal", sub.equal)
			t.Run("tokens", sub.tokens)
			t.Run("sample", sub.sample)
			t.Run("drafts", sub.drafts)
			t.Run("rows ahead", sub.ahead)
			t.Run("memory", sub.memory)
			t.Run("refusals", sub.refusals)
		})
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
	return &subject{o, s, facts, layout}
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
