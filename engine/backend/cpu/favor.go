package cpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// favored lists the variants whose kernels multiply weights of some formats on a machine whose
// best variant is machine, for each value of Settings.Favor.
type favored struct {
	machine               string
	formats               []kernels.Format
	auto, decode, prefill string
}

// favors has rows for the quantized formats on machines with several kernels for some of them; the
// first row with a format counts. Elsewhere the variant's own kernel is taken whatever is favored.
var favors = []favored{
	{amx, outside, amx, amxOutside, amx},
	{amx, quantized, amx, amx, amx},
}

// amxOutside multiplies the codes of weights exactly and scales the sums (kcpu.Outside).
var amxOutside, _ = kcpu.Outside(amx, kernels.Q4_0)

// outside lists the formats of which amx has both kernels.
var outside = slices.DeleteFunc(kcpu.SupportedFormats(amx), func(f kernels.Format) bool {
	_, ok := kcpu.Outside(amx, f)
	return !ok
})

// quantized lists the stored formats of fewer than 16 bits that Linear reads.
var quantized = slices.DeleteFunc(kcpu.SupportedFormats(amx), func(f kernels.Format) bool {
	return f == kernels.F32 || f == kernels.F16 || f == kernels.BF16
})

// of returns the variant of the row for a value of Settings.Favor.
func (r favored) of(favor string) string {
	switch favor {
	case backend.FavorDecode:
		return r.decode
	case backend.FavorPrefill:
		return r.prefill
	}
	return r.auto
}

// favorsOf returns the row of favors for weights stored as f; false if the machine has one kernel
// for them, or none for one of the choices.
func (l layout) favorsOf(f kernels.Format) (favored, bool) {
	if _, ok := kcpu.Int8(l.variant, f); ok && l.int8 {
		return favored{}, false
	}
	i := slices.IndexFunc(favors, func(r favored) bool { return r.machine == l.variant && slices.Contains(r.formats, f) })
	if i < 0 {
		return favored{}, false
	}
	for _, v := range []string{favors[i].auto, favors[i].decode, favors[i].prefill} {
		if !slices.Contains(l.have, baseOf(v)) {
			return favored{}, false
		}
	}
	return favors[i], true
}

// baseOf returns the instruction set of a variant of Linear.
func baseOf(variant string) string {
	base, _, _ := strings.Cut(variant, "+")
	return base
}

// linear returns the variant of the kernels that multiply weights stored as f. It is chosen once
// for a layout: a step never chooses.
func (l layout) linear(f kernels.Format) string {
	if v, ok := kcpu.Int8(l.variant, f); ok && l.int8 {
		return v
	}
	if r, ok := l.favorsOf(f); ok && (!l.forced || l.favor != "") {
		return r.of(l.favor)
	}
	return l.variant
}

// variants returns the instruction sets of the layout's kernels.
func (l layout) variants() []string {
	out := []string{l.variant}
	for _, f := range quantized {
		if v := baseOf(l.linear(f)); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// checkFavor refuses a favor for a quantized format if the profile forces a variant that has no
// kernel of its own for it.
func (l layout) checkFavor(weight string, f kernels.Format) error {
	if l.favor == "" || !l.forced || !slices.Contains(quantized, f) {
		return nil
	}
	what := fmt.Sprintf("weight %s (%v) with favor %q and variant %s as set", weight, f, l.favor, l.variant)
	r, ok := l.favorsOf(f)
	if !ok {
		return backend.Unsupported(name, what, "the variant has one kernel for the format, which both decode and prefill take")
	}
	if v := r.of(l.favor); baseOf(v) != l.variant {
		return backend.Unsupported(name, what, "the kernel that favors it is "+v+"'s")
	}
	return nil
}

// favorChoice returns Settings.Favor as a choice; false if there is nothing to say.
func (l layout) favorChoice() (backend.Choice, bool) {
	i := slices.IndexFunc(favors, func(r favored) bool { return r.machine == l.variant })
	c := backend.Choice{Name: "favor", Value: l.favor, Why: "as set"}
	if l.favor == "" {
		c.Value, c.Why = "auto", "the default"
	}
	switch {
	case i < 0 && l.favor == "" || i >= 0 && l.forced && l.favor == "":
		return c, false
	case i < 0:
		c.Why += "; " + l.variant + " has one kernel for each format: decode and prefill take the same"
	default:
		c.Why += ": all weights have the kernels of " + l.variant
		if v := favors[i].of(l.favor); v != l.variant {
			c.Why += ", those with two kernels the one of " + v
		}
	}
	return c, true
}

// Favored lists the kernels among which Settings.Favor selects for matrices stored as f.
func (l layout) Favored(f kernels.Format) []backend.Favored {
	var out []backend.Favored
	for _, favor := range []string{"", backend.FavorDecode, backend.FavorPrefill} {
		other := l
		other.favor = favor
		v := other.linear(f)
		if l.forced && baseOf(v) != l.variant {
			continue
		}
		kernel := "linear." + v + "." + f.String()
		i := slices.IndexFunc(out, func(k backend.Favored) bool { return k.Kernel == kernel })
		if i < 0 {
			i = len(out)
			out = append(out, backend.Favored{Kernel: kernel, Taken: v == l.linear(f), Rate: estimate(v, f)})
		}
		out[i].Favors = append(out[i].Favors, cmp.Or(favor, "auto"))
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// estimates has what kernels of these forms reached with two threads on a processor with AMX
// (Sapphire Rapids), weights of 2,048 inputs by 8,192 outputs: at one row as a share of the read
// bandwidth, at 512 rows as a share of the tiles' rate. These kernels were not measured themselves.
var estimates = []struct {
	variant         string
	formats         []kernels.Format
	decode, prefill float64
}{
	{amx, []kernels.Format{kernels.Q8_0}, 0.90, 0.38},
	{amxOutside, []kernels.Format{kernels.Q8_0}, 1, 0.22},
	{amx, []kernels.Format{kernels.Q4_0}, 0.70, 0.40},
	{amxOutside, []kernels.Format{kernels.Q4_0}, 0.90, 0.22},
	{amx, []kernels.Format{kernels.Q4_1, kernels.Q4_K, kernels.I4}, 0.58, 0.40},
	{amxOutside, []kernels.Format{kernels.Q4_1, kernels.Q4_K, kernels.I4}, 0.85, 0.18},
}

// estimate returns the estimated rate of a variant's kernel for f; without a Basis if no machine has
// measured one like it.
func estimate(variant string, f kernels.Format) backend.KernelRate {
	for _, e := range estimates {
		if e.variant == variant && slices.Contains(e.formats, f) {
			return backend.KernelRate{Decode: e.decode, Prefill: e.prefill, Basis: "estimated"}
		}
	}
	return backend.KernelRate{}
}
