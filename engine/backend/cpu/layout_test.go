package cpu

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

var machine = backend.Facts{Cores: 4, Variants: []string{avx512, avx2, generic}, PageBytes: 4096, HugeBytes: 2 << 20}

func TestLayoutChoices(t *testing.T) {
	for _, c := range []struct {
		name    string
		facts   backend.Facts
		set     backend.Settings
		variant string
		threads int
		refused string
	}{
		{"the machine's best", machine, backend.Settings{}, avx512, 4, ""},
		{"forced", machine, backend.Settings{Variant: avx2, Threads: 3, HTTPShare: 0.2}, avx2, 3, ""},
		{"facts of a catalogue without variants", backend.Facts{Cores: 0}, backend.Settings{}, generic, 1, ""},
		{"forced but missing", machine, backend.Settings{Variant: amx}, "", 0, "this machine has avx512, avx2, generic"},
		{"unheard of", machine, backend.Settings{Variant: "sse9"}, "", 0, "this machine has"},
		{"negative threads", machine, backend.Settings{Threads: -1}, "", 0, "0 (one for each core) to 1024"},
		{"the whole machine to others", machine, backend.Settings{HTTPShare: 1}, "", 0, "below 1"},
	} {
		l, err := newLayout(c.facts, c.set)
		switch {
		case c.refused != "":
			if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: error %v, want one with %q", c.name, err, c.refused)
			}
		case err != nil || l.variant != c.variant || l.threads != c.threads || l.share != c.set.HTTPShare:
			t.Errorf("%s: %+v, %v", c.name, l, err)
		case len(l.Choices()) != 5:
			t.Errorf("%s: choices %v", c.name, l.Choices())
		}
	}
}

// TestChunk checks how many tokens a gated MLP computes at a time: on tiles whole times the 256
// rows that read weights once, elsewhere 384 or more; never in more chunks than programs have.
func TestChunk(t *testing.T) {
	for _, c := range []struct {
		variant      string
		tokens, want int
	}{
		{avx512, 384, 0}, {avx512, 512, 384}, {avx512, 6145, 448}, {avx512bf16, 512, 384},
		{amx, 512, 0}, {amx, 513, 512}, {amx, 2048, 512}, {amx, 8193, 768}, {amx, 16384, 1024},
	} {
		got := layout{variant: c.variant}.Chunk(c.tokens)
		if got != c.want {
			t.Errorf("%s, %d tokens: chunks of %d, want %d", c.variant, c.tokens, got, c.want)
		}
		if got > 0 && (got%backend.ValueAlign != 0 || got*backend.MaxChunks < c.tokens) {
			t.Errorf("%s, %d tokens: chunks of %d are not aligned, or too many", c.variant, c.tokens, got)
		}
	}
}

// TestHugePagesChosen: the plan shows the page size of the arenas.
func TestHugePagesChosen(t *testing.T) {
	for _, c := range []struct {
		facts backend.Facts
		want  string
		unit  int64
	}{
		{machine, "2 MiB (transparent, requested with madvise: arenas are multiples of a huge page)", 2 << 20},
		{backend.Facts{PageBytes: 64 << 10, HugeBytes: 512 << 10}, "512 KiB (transparent, requested with madvise: arenas are multiples of a huge page)", 512 << 10},
		{backend.Facts{Measured: true, PageBytes: 16 << 10}, "off (the machine has none: arenas use pages of 16 KiB)", 16 << 10},
		{backend.Facts{}, "unknown (the machine was not probed)", 4096},
	} {
		l, err := newLayout(c.facts, backend.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(l.Choices(), func(c backend.Choice) bool { return c.Name == "huge pages" })
		if i < 0 {
			t.Fatalf("no choice of pages in %v", l.Choices())
		}
		if got := l.Choices()[i]; got.Value+" ("+got.Why+")" != c.want || l.Round(1) != c.unit {
			t.Errorf("%s (%s) with arenas of %d bytes; want %s, %d", got.Value, got.Why, l.Round(1), c.want, c.unit)
		}
	}
}

func TestLayoutWeight(t *testing.T) {
	l, err := newLayout(machine, backend.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	both := backend.Multiply | backend.Lookup
	for _, c := range []struct {
		name      string
		use       backend.Use
		rows      int
		cols      int
		formats   []kernels.Format
		want      kernels.Format
		converted string // in the note
		bytes     int64  // 0: not checked
	}{
		{"native", backend.Multiply, 64, 64, []kernels.Format{kernels.Q4_1}, kernels.Q4_1, "", 64 * 40},
		{"tied", both, 64, 64, []kernels.Format{kernels.BF16}, kernels.BF16, "", 64 * 128},
		{"k-quant", both, 64, 256, []kernels.Format{kernels.Q6_K}, kernels.Q6_K, "", 4 * 3392},
		{"several formats", backend.Multiply, 64, 256, []kernels.Format{kernels.Q4_K, kernels.Q6_K}, kernels.Invalid, "", 32*256*19/32 + 2*3392},
		{"looked up only", backend.Lookup, 3, 256, []kernels.Format{kernels.Q4_K}, kernels.Q4_K, "", 448},
		{"vector", backend.Vector, 1, 33, []kernels.Format{kernels.F16}, kernels.F32, "", 192},
		{"no whole blocks", backend.Multiply, 64, 33, []kernels.Format{kernels.Q8_0}, kernels.Invalid, "", 0},
		{"numbers of tokens", backend.Multiply, 64, 64, []kernels.Format{kernels.I32}, kernels.Invalid, "", 0},
		{"nothing", backend.Multiply, 0, 64, []kernels.Format{kernels.F32}, kernels.Invalid, "", 0},
	} {
		w := backend.WeightSpec{Name: c.name, Rows: c.rows, Cols: c.cols, Use: c.use, Source: c.formats[0]}
		for _, f := range c.formats {
			w.Parts = append(w.Parts, backend.Part{Tensor: c.name, Rows: c.rows / len(c.formats), Format: f})
			if f != w.Source {
				w.Source = kernels.Invalid
			}
		}
		p, err := l.Weight(w)
		if c.bytes == 0 {
			if !errors.Is(err, backend.ErrUnsupported) {
				t.Errorf("%s: %+v, %v; want a refusal", c.name, p, err)
			}
			continue
		}
		if err != nil || p.Format != c.want || (c.bytes > 0 && p.Bytes != c.bytes) || p.Bytes%64 != 0 || p.Kernel == "" {
			t.Errorf("%s: %+v, %v; want %v in %d bytes", c.name, p, err, c.want, c.bytes)
		}
		if (c.converted == "") != (p.Note == "") || !strings.Contains(p.Note, c.converted) {
			t.Errorf("%s: note %q, want %q", c.name, p.Note, c.converted)
		}
	}
}

func TestRound(t *testing.T) {
	for _, c := range []struct{ huge, page, n, want int64 }{
		{2 << 20, 4096, 0, 0}, {2 << 20, 4096, 1, 2 << 20}, {2 << 20, 4096, 2 << 20, 2 << 20},
		{0, 4096, 4097, 8192}, {0, 0, 5, 4096}, {0, 65536, 1, 65536},
	} {
		l, err := newLayout(backend.Facts{HugeBytes: c.huge, PageBytes: c.page}, backend.Settings{})
		if got := l.Round(c.n); err != nil || got != c.want {
			t.Errorf("pages of %d and %d: %d rounds to %d, want %d", c.huge, c.page, c.n, got, c.want)
		}
	}
}

// TestWorkspaceRefuses: an error names a shape that no kernel supports.
func TestWorkspaceRefuses(t *testing.T) {
	l, err := newLayout(machine, backend.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for want, p := range map[string]*backend.Program{
		"heads of 1024":  {Shard: backend.Whole, Ops: []backend.Op{backend.Attention{Heads: 1, KVHeads: 1, HeadDim: 1024}}},
		"heads of 600":   {Shard: backend.Whole, Ops: []backend.Op{backend.Attention{Heads: 128, KVHeads: 1, HeadDim: 64, Latent: 600}}},
		"latent keys of": {Shard: backend.Whole, Ops: []backend.Op{backend.LatentRope{Rank: 1024}}},
		"convolution of": {Shard: backend.Whole, Ops: []backend.Op{backend.Conv{Kernel: 17}}},
		"keys of 512":    {Shard: backend.Whole, Ops: []backend.Op{backend.DeltaNet{KeyDim: 512}}},
		"vocabulary":     {Shard: backend.Whole, Vocab: 1 << 30, Ops: []backend.Op{backend.Sample{}}},
	} {
		if _, err := l.Workspace(p); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestRunsRefuses: an error names a feature that is planned and has no kernel yet.
func TestRunsRefuses(t *testing.T) {
	l, err := newLayout(machine, backend.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for want, p := range map[string]*backend.Program{
		"KV class old: a convolution's inputs in": {Classes: []backend.KVClass{{Name: "old", State: &backend.StateShape{ConvFormat: kernels.F8E4M3}}}},
	} {
		if err := l.Runs(nil, p); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestWeightFormats checks the layout of 8- and 4-bit floats, to the byte, and what is
// rejected.
func TestWeightFormats(t *testing.T) {
	l, err := newLayout(machine, backend.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	const block = 8 * 16 * 4096 // panels of 32 rows by 128 columns, of 4096 bytes
	for _, c := range []struct {
		name    string
		source  kernels.Format
		target  kernels.Format
		scaling backend.Scaling
		row0    int
		experts int
		bytes   int64 // of [256,2048] weights
		refused string
	}{
		{"f8", kernels.F8E4M3, 0, backend.NoScale, 0, 0, block, ""},
		{"f8 per tensor", kernels.F8E4M3, 0, backend.PerTensor, 0, 0, block + 256*4, ""},
		{"f8 per channel", kernels.F8E4M3, 0, backend.PerChannel, 0, 0, block + 256*4, ""},
		{"f8 per block", kernels.F8E4M3, 0, backend.PerBlock, 0, 0, block + 8*64, ""},
		{"f8 per block, from the middle of one", kernels.F8E4M3, 0, backend.PerBlock, 8, 0, block + 256*16*4, ""},
		{"experts in f8", kernels.F8E4M3, 0, backend.PerBlock, 0, 5, 5 * (block + 8*64), ""},
		{"experts in mxfp4", kernels.MXFP4, 0, backend.NoScale, 0, 3, 3 * block / 32 * 17, ""},
		{"online", kernels.BF16, kernels.F8E4M3, backend.PerChannel, 0, 0, block + 256*4, ""},
		{"cast", kernels.BF16, kernels.F16, backend.NoScale, 0, 0, 2 * block, ""},
		{"online per block", kernels.BF16, kernels.F8E4M3, backend.PerBlock, 0, 0, 0, "a scale for each output"},
		{"online e5m2", kernels.BF16, kernels.F8E5M2, backend.PerChannel, 0, 0, 0, "quantized to f8_e5m2"},
		{"blocks across", kernels.MXFP4, 0, backend.NoScale, -1, 0, 0, "stored as [in, out]"},
	} {
		w := backend.WeightSpec{
			Name: c.name, Rows: 256, Cols: 2048, Experts: c.experts, Source: c.source, Target: c.target, Scaling: c.scaling, Use: backend.Multiply,
			Parts: []backend.Part{{Tensor: "w", Row0: max(0, c.row0), Rows: 256, Format: c.source, Transposed: c.row0 < 0}},
		}
		p, err := l.Weight(w)
		if err == nil {
			err = l.Runs([]backend.WeightSpec{w}, &backend.Program{})
		}
		switch {
		case c.refused != "":
			if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", c.name, err)
			}
		case err != nil || p.Bytes != c.bytes || p.Format != w.Stored():
			t.Errorf("%s: %+v, %v; want %d bytes", c.name, p, err, c.bytes)
		}
	}
}

// TestProbe: on every machine, the last variant is portable C.
func TestProbe(t *testing.T) {
	f, err := Opener{}.Probe()
	if err != nil || len(f.Variants) == 0 || f.Variants[len(f.Variants)-1] != generic || f.Backend != name {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestArchitecture: a variant of another architecture is refused, with both by name.
func TestArchitecture(t *testing.T) {
	for _, c := range []struct {
		have      []string
		set, want string
	}{
		{[]string{avx2, generic}, neon, "variant neon: unsupported: this machine has avx2, generic; neon is of arm64, this machine is amd64"},
		{[]string{dotprod, neon, generic}, amx, "variant amx: unsupported: this machine has dotprod, neon, generic; amx is of amd64, this machine is arm64"},
		{[]string{dotprod, neon, generic}, i8mm, "variant i8mm: unsupported: this machine has dotprod, neon, generic"},
	} {
		_, err := newLayout(backend.Facts{Variants: c.have}, backend.Settings{Variant: c.set})
		if !errors.Is(err, backend.ErrUnsupported) || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%v", err)
		}
	}
}

// TestActivations: the plan shows what inputs are rounded to.
func TestActivations(t *testing.T) {
	for variant, want := range map[string]string{generic: "f32", avx2: "f32", avx512: "f32", avx512bf16: "bf16", amx: "bf16", neon: "f32", dotprod: "f32", i8mm: "bf16"} {
		if got := (layout{variant: variant}).activations().Value; got != want {
			t.Errorf("%s: activations %s, not %s", variant, got, want)
		}
		if got := (layout{variant: variant, int8: true}).activations().Value; got != "int8" {
			t.Errorf("%s, int8 as set: activations %s", variant, got)
		}
	}
}
