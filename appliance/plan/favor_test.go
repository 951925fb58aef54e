package plan_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/speed"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// onCPU returns the inputs of a model on a machine of the catalogue without a GPU.
func onCPU(t *testing.T, fields, machine string) plan.Inputs {
	t.Helper()
	i := on(t, "openai/gpt-oss-20b", "memory: kvCache: \"1GiB\"\n\t"+fields, machine)
	d, err := devices.Find(machine)
	if err != nil {
		t.Fatal(err)
	}
	i.Opener, i.Facts = cpu.Opener{}, d.Facts("cpu")
	return i
}

// TestFavor: the plan has the kernel of each format that cpu.favor selects, the other one, and their
// rates; measured ones where there are.
func TestFavor(t *testing.T) {
	const tiles, exact = "linear.amx.mxfp4", "linear.amx+outside.mxfp4"
	for fields, want := range map[string][]string{
		"":                       {"takes " + tiles + " (auto, prefill)", "not " + exact + " (decode)", `"favor": "",`},
		`cpu: favor: "decode"`:   {"takes " + exact + " (decode)", "not " + tiles + " (auto, prefill)", `"favor": "decode"`},
		`cpu: favor: "prefill"`:  {"takes " + tiles + " (auto, prefill)", "not " + exact + " (decode)", `"favor": "prefill"`},
		`cpu: variant: "avx512"`: {`"favored": []`},
	} {
		i := onCPU(t, fields, "cpu-16c-64g-amx")
		elems, size := kernels.MXFP4.Block()
		weight := float64(size) / float64(elems) // bytes
		i.Rates = &speed.Rates{Read: 1e9, BF16: 1e12, F32: 1e11, Int8: 1e12,
			Linear: []speed.Linear{{Kernel: tiles, Bytes: weight, Rows: speed.Curve{X: []float64{1, 512}, Y: []float64{weight / 0.5e9, 2 * 512 / 0.25e12}}}}}
		p := made(t, i)
		var text, json bytes.Buffer
		if err := errors.Join(p.TextAs(&text, plan.Form{Verbose: true}), p.JSON(&json)); err != nil {
			t.Fatal(err)
		}
		both := strings.Join(strings.Fields(text.String()+json.String()), " ")
		for _, s := range want {
			if !strings.Contains(both, s) {
				t.Errorf("%q: the plan does not have %q:\n%s", fields, s, &text)
			}
		}
		rates := strings.Contains(both, "decodes at 0.50 of the bandwidth, prompts at 0.25 of the matrix rate, measured") && strings.Contains(both, exact+" (decode): its rate was not measured")
		if rates != (len(want) > 1) {
			t.Errorf("%q: rates are in the plan: %v\n%s", fields, rates, &text)
		}
	}
}

// TestFavorWithoutEffect: where the machine has one kernel a format, the plan says that a favor
// changes nothing. A forced variant without such a kernel is refused, with format, variant and the
// field's position.
func TestFavorWithoutEffect(t *testing.T) {
	p := made(t, onCPU(t, `cpu: favor: "decode"`, "cpu-16c-64g"))
	if all := strings.Join(p.Warnings, "\n"); !strings.Contains(all, `cpu.favor: for this model's weights the machine has one kernel a format, so that "decode" changes nothing`) {
		t.Errorf("warnings %q", p.Warnings)
	}
	if p := made(t, onCPU(t, `cpu: favor: "decode"`, "cpu-16c-64g-amx")); strings.Contains(strings.Join(p.Warnings, "\n"), "cpu.favor") {
		t.Errorf("with a choice: warnings %q", p.Warnings)
	}
	for fields, want := range map[string]string{
		`cpu: {variant: "avx512", favor: "prefill"}`:    `(mxfp4) with favor "prefill" and variant avx512 as set`,
		`cpu: {variant: "avx512bf16", favor: "decode"}`: `(mxfp4) with favor "decode" and variant avx512bf16 as set`,
	} {
		_, err := plan.Make(onCPU(t, fields, "cpu-16c-64g-amx"))
		var placed *schema.Error
		if !errors.As(err, &placed) || !strings.Contains(err.Error(), "family.cue:7:") || !strings.Contains(err.Error(), "cpu.favor: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

// TestSpeedBand: rates that were measured have the narrow band where the plan's kernels were among them, with
// its threads; otherwise the table's band and the reason.
func TestSpeedBand(t *testing.T) {
	for fields, want := range map[string]struct {
		band float64
		why  string
	}{
		`cpu: threads: 4`:                    {0.25, ""},
		`cpu: {threads: 4, variant: "avx2"}`: {0.50, "was not measured, its rate is estimated"},
		`cpu: threads: 2`:                    {0.50, "measured with 4 threads, predicted with 2: scaled"},
		`cpu: threads: 9`:                    {0.25, "9 threads share 4 cores: predicted with 4"},
	} {
		i := onCPU(t, fields, "cpu-16c-64g")
		i.Facts.Measured, i.Facts.Cores, i.Facts.Variants = true, 4, []string{"avx512bf16", "avx512", "avx2", "generic"}
		var err error
		if i.Rates, _, err = speed.Estimate(i.Facts, "avx512bf16", 4); err != nil {
			t.Fatal(err)
		}
		p, err := made(t, i).WithSpeed()
		if err != nil {
			t.Fatal(err)
		}
		s := p.Speed
		if s.Band != want.band || !strings.Contains(s.Why, want.why) || want.why == "" && s.Why != "" || s.Threads > 4 {
			t.Errorf("%s: band %g, %q, %d threads", fields, s.Band, s.Why, s.Threads)
		}
		if basis := s.Kernels[0].Basis; (basis == "measured") != (want.band == 0.25) {
			t.Errorf("%s: kernel %s is %s", fields, s.Kernels[0].Kernel, basis)
		}
	}
}

// TestSpeedOfFavored: a prediction has the estimates that the plan has of kernels that were not measured.
func TestSpeedOfFavored(t *testing.T) {
	p := made(t, onCPU(t, "", "cpu-16c-64g-amx"))
	rate := func(prefill float64) float64 {
		p.Favored[0].Kernels[0].Rate = backend.KernelRate{Decode: 0.5, Prefill: prefill, Basis: "estimated"}
		with, err := p.WithSpeed()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range with.Speed.Kernels {
			if k.Kernel == p.Favored[0].Kernels[0].Kernel {
				return k.Prefill
			}
		}
		t.Fatalf("no rate of %s", p.Favored[0].Kernels[0].Kernel)
		return 0
	}
	if a, b := rate(0.1), rate(0.05); math.Abs(a/b-2) > 1e-9 {
		t.Errorf("0.10 of the rate is %g, 0.05 is %g", a, b)
	}
}
