package cpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

var tiled = backend.Facts{Cores: 4, Variants: []string{amx, avx512bf16, avx512, avx2, generic}, PageBytes: 4096}

// kernelOf returns the kernel that a layout takes for a matrix stored as f.
func kernelOf(facts backend.Facts, s backend.Settings, f kernels.Format) (string, error) {
	l, err := newLayout(facts, s)
	if err != nil {
		return "", err
	}
	p, err := l.Weight(backend.WeightSpec{Name: "w", Rows: 64, Cols: 256, Use: backend.Multiply, Source: f, Parts: []backend.Part{{Tensor: "w", Rows: 64, Format: f}}})
	return p.Kernel, err
}

// TestFavors: every format's kernel for each favor, on machines with and without tiles, and what a
// forced variant refuses by the names of format and variant.
func TestFavors(t *testing.T) {
	for _, c := range []struct {
		variant, favor, activations string
		format                      kernels.Format
		facts                       backend.Facts
		want, refused               string
	}{
		{"", "", "", kernels.BF16, tiled, "linear.amx.bf16", ""},
		{"", "", "", kernels.F16, tiled, "linear.amx.f16", ""},
		{"", "", "", kernels.Q8_0, tiled, "linear.amx.q8_0", ""},
		{"", "", "", kernels.MXFP4, tiled, "linear.amx.mxfp4", ""},
		{"", "decode", "", kernels.Q4_K, tiled, "linear.amx+outside.q4_k", ""},
		{"", "decode", "", kernels.Q6_K, tiled, "linear.amx.q6_k", ""},
		{"", "decode", "", kernels.BF16, tiled, "linear.amx.bf16", ""},
		{"", "prefill", "", kernels.Q4_K, tiled, "linear.amx.q4_k", ""},
		{"", "prefill", "", kernels.F8E4M3, tiled, "linear.amx.f8_e4m3", ""},
		{"", "decode", "int8", kernels.Q4_K, tiled, "linear.avx512bf16+int8.q4_k", ""},
		{"", "decode", "int8", kernels.MXFP4, tiled, "linear.amx+outside.mxfp4", ""},
		{"", "prefill", "", kernels.Q4_K, machine, "linear.avx512.q4_k", ""},
		{"", "", "", kernels.Q4_K, backend.Facts{Variants: []string{amx, generic}}, "linear.amx.q4_k", ""},
		{amx, "", "", kernels.Q4_K, tiled, "linear.amx.q4_k", ""},
		{amx, "prefill", "", kernels.Q4_K, tiled, "linear.amx.q4_k", ""},
		{amx, "decode", "", kernels.Q4_K, tiled, "linear.amx+outside.q4_k", ""},
		{amx, "decode", "", kernels.BF16, tiled, "linear.amx.bf16", ""},
		{amx, "decode", "", kernels.Q6_K, tiled, "linear.amx.q6_k", ""},
		{avx512, "prefill", "", kernels.Q8_0, machine, "", `weight w (q8_0) with favor "prefill" and variant avx512 as set`},
		{avx512bf16, "decode", "", kernels.MXFP4, tiled, "", `weight w (mxfp4) with favor "decode" and variant avx512bf16 as set`},
		{amx, "prefill", "int8", kernels.Q6_K, tiled, "", `weight w (q6_k) with favor "prefill" and variant amx as set`},
		{"", "speed", "", kernels.Q8_0, tiled, "", "favor speed"},
	} {
		name := fmt.Sprintf("%v, variant %q, favor %q, activations %q on %v", c.format, c.variant, c.favor, c.activations, c.facts.Variants)
		got, err := kernelOf(c.facts, backend.Settings{Variant: c.variant, Favor: c.favor, Activations: c.activations}, c.format)
		switch {
		case c.refused != "":
			if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || got != c.want:
			t.Errorf("%s: kernel %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// TestFavored: formats with several kernels are listed with who takes them and estimated rates;
// others are not.
func TestFavored(t *testing.T) {
	l, err := newLayout(tiled, backend.Settings{Favor: backend.FavorPrefill})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v", l.Favored(kernels.Q8_0))
	if want := "[{Kernel:linear.amx.q8_0 Favors:[auto prefill] Taken:true Rate:{Decode:0.9 Prefill:0.38 Basis:estimated}} " +
		"{Kernel:linear.amx+outside.q8_0 Favors:[decode] Taken:false Rate:{Decode:1 Prefill:0.22 Basis:estimated}}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if list := l.Favored(kernels.MXFP4); len(list) != 2 || list[0].Rate.Basis != "" {
		t.Errorf("mxfp4, which no machine has measured: %+v", list)
	}
	for _, s := range []backend.Settings{{Variant: avx512bf16}, {Favor: backend.FavorDecode, Activations: backend.Int8Activations}} {
		l, err := newLayout(tiled, s)
		if list := l.Favored(kernels.Q8_0); err != nil || list != nil {
			t.Errorf("%+v: %+v, %v", s, list, err)
		}
	}
	if list := l.Favored(kernels.BF16); list != nil {
		t.Errorf("bf16: %+v", list)
	}
}

// TestFavorChoice: the plan says what is favored where there is a choice or where one is set.
func TestFavorChoice(t *testing.T) {
	for _, c := range []struct {
		facts backend.Facts
		set   backend.Settings
		want  string
	}{
		{tiled, backend.Settings{}, "auto (the default: all weights have the kernels of amx)"},
		{tiled, backend.Settings{Favor: "decode"}, "decode (as set: all weights have the kernels of amx, those with two kernels the one of amx+outside)"},
		{machine, backend.Settings{Favor: "decode"}, "decode (as set; avx512 has one kernel for each format: decode and prefill take the same)"},
		{machine, backend.Settings{}, ""}, {tiled, backend.Settings{Variant: amx}, ""}, {tiled, backend.Settings{Variant: avx512bf16}, ""},
	} {
		l, err := newLayout(c.facts, c.set)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if i := slices.IndexFunc(l.Choices(), func(c backend.Choice) bool { return c.Name == "favor" }); i >= 0 {
			got = l.Choices()[i].Value + " (" + l.Choices()[i].Why + ")"
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.set, got, c.want)
		}
	}
}

// TestFavorOpens: a device needs the instruction set of every kernel that its layout takes.
func TestFavorOpens(t *testing.T) {
	l, err := newLayout(tiled, backend.Settings{Activations: backend.Int8Activations})
	if err != nil || !slices.Equal(l.variants(), []string{amx, avx512bf16}) {
		t.Errorf("variants %v, %v", l.variants(), err)
	}
	if l, err = newLayout(tiled, backend.Settings{Favor: "decode"}); err != nil || !slices.Equal(l.variants(), []string{amx}) {
		t.Errorf("of favor decode: %v, %v", l.variants(), err)
	}
}
