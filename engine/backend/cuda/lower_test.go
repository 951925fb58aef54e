package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// layer records a program with a mixture of experts, attention and a head, for this many
// tokens.
func layer(t *testing.T, f, kv kernels.Format, tokens int) *backend.Program {
	t.Helper()
	return layerOf(t, f, kv, tokens, 64)
}

// layerOf is layer with four heads of dim dimensions.
func layerOf(t *testing.T, f, kv kernels.Format, tokens, dim int) *backend.Program {
	t.Helper()
	cols := 4 * dim
	spec := func(name string, use backend.Use, f kernels.Format, experts, rows, cols int) backend.WeightSpec {
		return backend.WeightSpec{Name: name, Rows: rows, Cols: cols, Source: f, Use: use, Experts: experts, Parts: []backend.Part{{Tensor: name, Rows: rows, Format: f}}}
	}
	class := backend.KVClass{Name: "full", Format: kv, BlockSize: 16, Layers: 1, KVHeads: 2, HeadDim: dim, MaxPages: 512, PagesPerSlab: 1, Plane: true}
	class.SlabBytes = class.PageBytes()
	p := &backend.Program{Name: "p", Vocab: 1000, Classes: []backend.KVClass{class}, Bucket: backend.Bucket{Tokens: tokens, Seqs: min(tokens, 64), Samples: min(tokens, 64)}}
	p.Weights = []backend.WeightSpec{
		spec("table", backend.Lookup|backend.Multiply, f, 0, 1000, cols),
		spec("qkv", backend.Multiply, f, 0, 2*cols, cols),
		spec("up", backend.Multiply, f, 8, 2*256, cols), spec("down", backend.Multiply, f, 8, cols, 256),
		spec("router", backend.Multiply, kernels.F32, 0, 8, cols),
		spec("norm", backend.Vector, kernels.F32, 0, 1, cols), spec("freq", backend.Vector, kernels.F32, 0, 1, dim/2),
	}
	r := backend.Record(p)
	v := func(f kernels.Format, rows backend.Rows, cols int) backend.Value { return r.New("v", f, rows, cols) }
	f32, none := kernels.F32, backend.NoWeight
	ids, x, qkv, angles := v(kernels.I32, backend.PerToken, 1), v(f32, backend.PerToken, cols), v(f32, backend.PerToken, 2*cols), v(f32, backend.PerToken, dim)
	q, k, val := v(f32, backend.PerToken, cols), v(kv, backend.PerToken, 2*dim), v(kv, backend.PerToken, 2*dim)
	logits, picks, shares := v(f32, backend.PerToken, 8), v(kernels.I32, backend.PerToken, 2), v(f32, backend.PerToken, 2)
	last, z := v(f32, backend.PerSample, cols), v(f32, backend.PerSample, 1000)
	for _, op := range []backend.Op{
		backend.Tokens{Out: ids}, backend.StoreTokens{Ids: ids}, backend.Embed{Ids: ids, Table: 0, Y: x, Scale: 1},
		backend.Norm{X: x, Residual: backend.NoValue, W: 5, Y: x}, backend.Linear{X: x, W: 1, Bias: none, Y: qkv},
		backend.Angles{InvFreq: 6, Scale: 1, Y: angles}, backend.Rope{QKV: qkv, Angles: angles, Q: q, K: k, V: val, Heads: 4, KVHeads: 2, HeadDim: dim, Rotary: dim},
		backend.Attention{Q: q, K: k, V: val, Y: q, Heads: 4, KVHeads: 2, HeadDim: dim, Scale: 1}, backend.StoreKV{K: k, V: val},
		backend.Linear{X: x, W: 4, Bias: none, Y: logits}, backend.Route{Logits: logits, Ids: picks, Weights: shares, Top: 2, Scale: none},
		backend.Experts{X: x, Ids: picks, Weights: shares, Y: x, GateUp: 2, Down: 3, GateUpBias: none, DownBias: none, Top: 2, Width: 256},
		backend.Add{X: q, Into: x, Scale: none}, backend.Gather{X: x, Y: last}, backend.Linear{X: last, W: 0, Bias: none, Y: z}, backend.Sample{Logits: z},
	} {
		r.Do(op)
	}
	r.Free(ids, x, qkv, angles, q, k, val, logits, picks, shares, last, z)
	p, err := r.Program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLower: in every variant, launches use existing kernels, with arguments of their size
// and within their limits.
func TestLower(t *testing.T) {
	listed := map[string]cuda.Kernel{}
	for _, k := range cuda.Catalogue() {
		listed[k.Name] = k
	}
	for _, device := range []string{"a100-80g", "l40s", "h100", "b200"} {
		l := on(t, device, backend.Graphs{})
		for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F32, kernels.MXFP4, kernels.Q2_K, kernels.IQ4_NL} {
			for _, tokens := range []int{1, 20, 512} {
				p := layer(t, f, []kernels.Format{kernels.BF16, kernels.F32}[tokens%2], tokens)
				if err := l.Runs(p.Weights, p); err != nil {
					t.Fatal(err)
				}
				for _, v := range variants(p.Bucket) {
					list, err := l.lower(p, v, noAddresses(p))
					if err != nil {
						t.Fatal(err)
					}
					for _, n := range list {
						k, ok := listed[n.kernel]
						if !ok || len(n.args) != k.Args || n.threads[0] > k.Threads || n.shared > k.Shared || n.shared > l.shared() {
							t.Errorf("%s, %+v: %+v; listed %+v", device, v, n, k)
						}
						for _, s := range n.symbols {
							if s.at != inGrid && s.at+4 > len(n.args) || s.over <= 0 || s.times <= 0 {
								t.Errorf("%s: symbol %+v of %d bytes", n.kernel, s, len(n.args))
							}
						}
					}
				}
			}
		}
	}
}

// TestFP8Activations: products with fp8 weights read packed 8-bit inputs, with scales by row
// or by 128 columns, and the op before a product packs them. Plans print the kernels that are
// launched, and the workspace is the planned one.
func TestFP8Activations(t *testing.T) {
	listed := map[string]cuda.Kernel{}
	for _, k := range cuda.Catalogue() {
		listed[k.Name] = k
	}
	for _, device := range []string{"l40s", "h100", "b200"} {
		l := onFP8(t, device)
		for scaling, group := range map[backend.Scaling]int32{backend.PerChannel: 0, backend.PerBlock: 4} {
			for _, tokens := range []int{1, 20, 512} {
				p := layer(t, kernels.F8E4M3, kernels.BF16, tokens)
				for i := range p.Weights[:4] {
					p.Weights[i].Scaling = scaling
				}
				if err := l.Runs(p.Weights, p); err != nil {
					t.Fatal(err)
				}
				launched := map[string]int{}
				for _, v := range variants(p.Bucket) {
					list, err := l.lower(p, v, noAddresses(p))
					if err != nil {
						t.Fatal(err)
					}
					for _, n := range list {
						k, ok := listed[n.kernel]
						if !ok || len(n.args) != k.Args || n.threads[0] > k.Threads || n.shared > k.Shared || n.shared > l.shared() {
							t.Errorf("%s, %+v: %+v; listed %+v", device, v, n, k)
						}
						switch {
						case k.Stem == "pack":
							at := unsafe.Offsetof(cuda.PackArgs{}.Group)
							if got := int32(n.args[at]); got != group || k.Format != "x as f8_e4m3" {
								t.Errorf("%s, %v: %s by groups of %d steps", device, scaling, n.kernel, got)
							}
							launched["pack"]++
						case strings.HasPrefix(n.kernel, "linear_f8"):
							if !strings.HasPrefix(n.kernel, "linear_f8_e4m3_x8_") {
								t.Errorf("%s: %s", device, n.kernel)
							}
							launched[n.kernel]++
						}
					}
				}
				if len(launched) < 2 {
					t.Errorf("%s, %d tokens: %v", device, tokens, launched)
				}
				checkKernelChoices(t, l, p)
				checkOffsets(t, l, p)
			}
		}
	}
}

// TestLibraryLower: with cuBLASLt, dense 16-bit weights are stored row by row. For few rows,
// kernels that read this layout multiply them; for more, the library does, and its workspace
// is behind X. Experts, float32 and unsupported shapes are unchanged. Without the setting,
// the library is not used.
func TestLibraryLower(t *testing.T) {
	own := on(t, "h100", backend.Graphs{})
	l, err := newLayout(own.facts, backend.Settings{Linear: backend.CUBLASLt})
	if err != nil {
		t.Fatal(err)
	}
	for _, tokens := range []int{1, 20, 512} {
		p := layer(t, kernels.BF16, kernels.BF16, tokens)
		most := int64(0)
		for _, v := range variants(p.Bucket) {
			list, err := l.lower(p, v, noAddresses(p))
			if err != nil {
				t.Fatal(err)
			}
			for i, n := range list {
				k := l.kernels[n.kernel]
				switch backend.OpName(p.Ops[n.op]) {
				case "experts":
					if strings.Contains(n.kernel, "plain") || k.Stem == "" {
						t.Errorf("experts by %s", n.kernel)
					}
				case "linear":
					rows := min(v.rows, tokens)
					if p.Ops[n.op].(backend.Linear).W == 0 {
						rows = min(rows, p.Bucket.Samples)
					}
					if strings.HasPrefix(n.kernel, "linear_bf16") && (k.Stem == "") != (rows > cuda.DecodeRows) {
						t.Errorf("%d rows by %s", rows, n.kernel)
					}
					if k.Stem != "" || strings.HasSuffix(n.kernel, "f32") {
						continue
					}
					a := *(*cuda.LibraryArgs)(unsafe.Pointer(&slices.Clone(n.args)[0]))
					if len(n.args) != k.Args || int(a.Most) != rows || a.In != 256 || a.Workspace < a.X+cuda.Ptr(2*256*rows) || len(n.symbols) != 2 {
						t.Errorf("%+v, symbols %+v", a, n.symbols)
					}
					most = max(most, int64(a.Workspace)+backend.CUBLASLtWorkspace)
					if before := list[i-1].kernel; !strings.Contains(before, "pack_bf16") && l.kernels[before].Stem != "" {
						t.Errorf("%s follows %s", n.kernel, before)
					}
				}
			}
		}
		if n, err := l.Workspace(p); err != nil || n < most || tokens > cuda.DecodeRows && most == 0 {
			t.Errorf("%d tokens: a workspace of %d (%v), used to %d", tokens, n, err, most)
		}
		checkKernelChoices(t, l, p)
		for _, v := range variants(p.Bucket) {
			list, err := own.lower(p, v, noAddresses(p))
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range list {
				if strings.Contains(n.kernel, "plain") || strings.Contains(n.kernel, "cublaslt") {
					t.Errorf("%s without being asked for", n.kernel)
				}
			}
		}
	}
	w := backend.WeightSpec{Name: "w", Rows: 100, Cols: 64, Source: kernels.BF16, Use: backend.Multiply}
	for _, c := range []struct {
		change func(*backend.WeightSpec)
		kernel string
		bytes  int64
	}{
		{func(*backend.WeightSpec) {}, "linear_bf16_cublaslt", 100 * 64 * 2},
		{func(w *backend.WeightSpec) { w.Source = kernels.F16; w.Use |= backend.Lookup }, "linear_f16_cublaslt", 100 * 64 * 2},
		{func(w *backend.WeightSpec) { w.Source = kernels.F32 }, "linear_f32", 100 * 64 * 4},
		{func(w *backend.WeightSpec) { w.Cols = 40 }, "linear_bf16", 112 * 64 * 2},
		{func(w *backend.WeightSpec) { w.Rows = 98 }, "linear_bf16", 112 * 64 * 2},
		{func(w *backend.WeightSpec) { w.Experts = 2 }, "linear_bf16", 2 * 112 * 64 * 2},
		{func(w *backend.WeightSpec) { w.Use = backend.Lookup }, "embed_bf16", 100 * 64 * 2},
		{func(w *backend.WeightSpec) { w.Source = kernels.Q8_0 }, "linear_q8_0", 7680},
	} {
		w := w
		c.change(&w)
		if p, err := l.Weight(w); err != nil || p.Kernel != c.kernel || p.Bytes != c.bytes {
			t.Errorf("%s, %d bytes (%v), want %s, %d", p.Kernel, p.Bytes, err, c.kernel, c.bytes)
		}
	}
	if _, err := newLayout(own.facts, backend.Settings{Linear: "blas"}); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("linear blas: %v", err)
	}
}

// TestLibraryFP8Lower: on compute capability 9.0, the library also multiplies dense fp8
// weights with rounded inputs, with a scale for each row or for each block of 128, in its own
// layout. A kernel adds a bias afterwards. Unsupported cases, and all weights on other
// devices, stay in panels.
func TestLibraryFP8Lower(t *testing.T) {
	layoutOn := func(device, activations string) layout {
		l, err := newLayout(on(t, device, backend.Graphs{}).facts, backend.Settings{Linear: backend.CUBLASLt, Activations: activations})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := layoutOn("h100", backend.FP8Activations)
	spec := func(scaling backend.Scaling, cols int, rows ...int) backend.WeightSpec {
		w := backend.WeightSpec{Name: "w", Cols: cols, Source: kernels.F8E4M3, Scaling: scaling, Use: backend.Multiply}
		for _, n := range rows {
			w.Rows += n
			w.Parts = append(w.Parts, backend.Part{Tensor: "w", Rows: n, Format: kernels.F8E4M3})
		}
		return w
	}
	const product, own = "linear_f8_e4m3_x8_cublaslt", "linear_f8_e4m3_x8"
	many := spec(backend.PerChannel, 256, 128)
	many.Experts = 2
	table := spec(backend.PerTensor, 256, 128)
	table.Use |= backend.Lookup
	for i, c := range []struct {
		w      backend.WeightSpec
		kernel string
		bytes  int64 // 0: not checked
	}{
		{spec(backend.NoScale, 96, 80), product, 96*80 + 512},
		{spec(backend.PerTensor, 96, 48, 32), product, 96*80 + 512},
		{spec(backend.PerChannel, 96, 80), product, 96*80 + 512},
		{spec(backend.PerBlock, 640, 128, 48), product, 640*176 + 256}, // 2 rows of 8
		{spec(backend.PerBlock, 640, 48, 128), own, 0},
		{spec(backend.PerBlock, 160, 128), own, 0},
		{spec(backend.PerChannel, 80, 80), own, 0},
		{spec(backend.PerChannel, 96, 72), own, 0},
		{many, own, 0},
		{table, own, 0},
	} {
		p, err := l.Weight(c.w)
		if err != nil || p.Kernel != c.kernel || c.bytes != 0 && p.Bytes != c.bytes {
			t.Errorf("%d: %s, %d bytes (%v), want %s, %d", i, p.Kernel, p.Bytes, err, c.kernel, c.bytes)
		}
	}
	for _, c := range []struct{ device, activations, kernel, why string }{
		{"h100", "", "linear_f8_e4m3", "for dense bf16 and f16 beyond 16 rows; 32"}, {"h200", backend.FP8Activations, product, "for dense bf16, f16 and f8_e4m3 beyond 16 rows; 32"},
		{"l40s", backend.FP8Activations, own, "f8_e4m3 is vapp's: "}, {"b200", backend.FP8Activations, own, "f8_e4m3 is vapp's: "}, {"rtx-5090", backend.FP8Activations, own, "f8_e4m3 is vapp's: "},
	} {
		l := layoutOn(c.device, c.activations)
		choices := l.Choices()
		if p, err := l.Weight(spec(backend.PerChannel, 256, 128)); err != nil || p.Kernel != c.kernel || !strings.Contains(choices[len(choices)-1].Why, c.why) {
			t.Errorf("%s, activations %q: %s (%v), %v", c.device, c.activations, p.Kernel, err, choices)
		}
	}
	made := func(tokens int, w backend.WeightSpec) *backend.Program {
		p := &backend.Program{Name: "p", Vocab: 8, Bucket: backend.Bucket{Tokens: tokens, Seqs: 1, Samples: 1}}
		p.Weights = []backend.WeightSpec{w, {Name: "bias", Rows: 1, Cols: w.Rows, Source: kernels.F32, Use: backend.Vector, Parts: []backend.Part{{Tensor: "bias", Elems: w.Rows, Format: kernels.F32}}}}
		r := backend.Record(p)
		x, y := r.New("x", kernels.F32, backend.PerToken, w.Cols), r.New("y", kernels.F32, backend.PerToken, w.Rows)
		r.Do(backend.Linear{X: x, W: 0, Bias: 1, Y: y})
		r.Free(x, y)
		p, err := r.Program()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, w := range []backend.WeightSpec{spec(backend.PerTensor, 640, 128, 48), spec(backend.PerBlock, 640, 128, 48)} {
		p := made(100, w)
		checkKernelChoices(t, l, p)
		checkOffsets(t, l, p)
		for _, v := range variants(p.Bucket) {
			list, err := l.lower(p, v, noAddresses(p))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, n := range list {
				names = append(names, n.kernel)
			}
			rows, want := min(v.rows, 100), []string{"linear_pack_f8_e4m3", "linear_f8_e4m3_x8_plain_8"}
			switch {
			case rows > cuda.DecodeRows:
				want = []string{"linear_pack_f8_e4m3", product, cuda.LinearBias}
			case rows > 8:
				want[1] = "linear_f8_e4m3_x8_plain_16"
			}
			if !slices.Equal(names, want) {
				t.Fatalf("%d rows, %v: %v", rows, w.Scaling, names)
			}
			pack := *(*cuda.PackArgs)(unsafe.Pointer(&slices.Clone(list[0].args)[0]))
			most := int32(0)
			if rows > cuda.DecodeRows {
				a := *(*cuda.LibraryArgs)(unsafe.Pointer(&slices.Clone(list[1].args)[0]))
				if a.X != pack.Y || a.Sums != pack.Sums || a.Scales == 0 || a.Bias != 0 || int(a.Most) != rows || (a.Blocks == 1) != (w.Scaling == backend.PerBlock) {
					t.Errorf("%d rows: %+v of %+v", rows, a, pack)
				}
				most = a.Most * a.Blocks
			}
			if pack.Words != 2 || pack.Most != most {
				t.Errorf("%d rows, %v: %+v", rows, w.Scaling, pack)
			}
		}
	}
	blocks := spec(backend.PerBlock, 640, 128, 48)
	if err := l.Runs(nil, made(102, blocks)); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "weight w: unsupported: cublaslt multiplies with scales of blocks for multiples of 4 rows, and a step has up to 102: make ") {
		t.Errorf("102 rows: %v", err)
	}
	if err := l.Runs(nil, made(102, spec(backend.PerChannel, 640, 176))); err != nil {
		t.Errorf("102 rows with a scale each: %v", err)
	}
}

// TestFused: an op whose result only products read packs it, once for consecutive products.
// It also writes the unpacked result if another op reads it.
func TestFused(t *testing.T) {
	const in, wide = 256, 192
	spec := func(name string, rows, cols int) backend.WeightSpec {
		return backend.WeightSpec{Name: name, Rows: rows, Cols: cols, Source: kernels.BF16, Use: backend.Multiply}
	}
	// kept means that an op after the products reads the normalised rows.
	launches := func(kept bool, tokens int) (names []string, plain bool) {
		p := &backend.Program{Name: "p", Bucket: backend.Bucket{Tokens: tokens, Seqs: 1, Samples: 1}}
		p.Weights = []backend.WeightSpec{spec("up", 2*wide, in), spec("side", 64, in), spec("down", in, wide)}
		p.Weights[0].GateUp = true
		r := backend.Record(p)
		v := func(cols int) backend.Value { return r.New("v", kernels.F32, backend.PerToken, cols) }
		x, n, gu, z, act := v(in), v(in), v(2*wide), v(64), v(wide)
		r.Do(backend.Norm{X: x, Residual: backend.NoValue, W: backend.NoWeight, Y: n})
		r.Do(backend.Linear{X: n, W: 0, Bias: backend.NoWeight, Y: gu})
		r.Do(backend.Linear{X: n, W: 1, Bias: backend.NoWeight, Y: z})
		if kept {
			r.Do(backend.Add{X: n, Into: x, Scale: backend.NoWeight})
		}
		r.Free(n)
		r.Do(backend.GLU{X: gu, Y: act})
		r.Do(backend.Linear{X: act, W: 2, Bias: backend.NoWeight, Y: x})
		r.Free(x, gu, z, act)
		if _, err := r.Program(); err != nil {
			t.Fatal(err)
		}
		list, err := on(t, "h100", backend.Graphs{}).lower(p, variant{rows: tokens}, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			names = append(names, l.kernel)
			if l.kernel == "norm_pack_bf16" {
				at := unsafe.Offsetof(cuda.NormPackArgs{}.Plain)
				plain = !slices.Equal(l.args[at:at+8], make([]byte, 8))
			}
		}
		return names, plain
	}
	for _, c := range []struct {
		kept   bool
		tokens int
		want   string
	}{
		{false, 1, "norm_pack_bf16 linear_bf16_8 linear_bf16_8 glu_pack_bf16 linear_bf16_8"},
		{false, 2048, "norm_pack_bf16 linear_bf16_wide linear_bf16_wide glu_pack_bf16 linear_bf16_wide"},
		{true, 1, "norm_pack_bf16 linear_bf16_8 linear_bf16_8 add glu_pack_bf16 linear_bf16_8"},
	} {
		names, plain := launches(c.kept, c.tokens)
		if got := strings.Join(names, " "); got != c.want || plain != c.kept {
			t.Errorf("%+v: %s, the rows themselves: %v", c, got, plain)
		}
	}
}

// TestPackedTwice: a norm before products of rows in 8 bits and in bf16 packs them both ways, if nothing else reads the rows: those in
// bf16 are in their place, those in 8 bits stay in the workspace for a later product.
func TestPackedTwice(t *testing.T) {
	const in, out = 256, 128
	type change struct {
		second      kernels.Format
		kept, first bool // an op behind reads the rows; the product in bf16 is the first
		inPlace     bool // the norm's result has the place of its input
		chained     bool // a sum before the norm
		library     bool
	}
	for name, c := range map[string]struct {
		change
		want string // the kernels' names in a step of one row
		also int32
	}{
		"twice":        {change{second: kernels.BF16}, "norm_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16 linear_bf16_8 linear_f8_e4m3_x8_mid_16", 1},
		"behind a sum": {change{second: kernels.BF16, chained: true}, "chain_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16 linear_bf16_8 linear_f8_e4m3_x8_mid_16", 1},
		"by rows":      {change{second: kernels.BF16, library: true}, "norm_pack_f8_e4m3 linear_f8_e4m3_x8_plain_8 linear_bf16_plain_8 linear_f8_e4m3_x8_plain_8", 3},
		"f16":          {change{second: kernels.F16}, "norm_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16 linear_pack_f16 linear_f16_8 linear_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16", 0},
		"minima":       {change{second: kernels.Q4_1}, "norm_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16 linear_pack_bf16 linear_q4_1_8 linear_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16", 0},
		"kept":         {change{second: kernels.BF16, kept: true}, "norm_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16 linear_pack_bf16 linear_bf16_8 linear_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16 softcap", 0},
		"in place":     {change{second: kernels.BF16, inPlace: true}, "norm_rows linear_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16 linear_pack_bf16 linear_bf16_8 linear_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16", 0},
		"bf16 first":   {change{second: kernels.BF16, first: true}, "norm_pack_bf16 linear_bf16_8 linear_pack_f8_e4m3 linear_f8_e4m3_x8_mid_16 linear_f8_e4m3_x8_mid_16", 0},
	} {
		p := &backend.Program{Name: "p", Bucket: backend.Bucket{Tokens: 64, Seqs: 1, Samples: 1}}
		narrow := backend.WeightSpec{Name: "narrow", Rows: out, Cols: in, Source: kernels.F8E4M3, Use: backend.Multiply, RoundInputs: true, Scaling: backend.PerChannel}
		p.Weights = []backend.WeightSpec{
			{Name: "norm", Rows: 1, Cols: in, Source: kernels.F32, Use: backend.Vector}, narrow, {Name: "wide", Rows: out, Cols: in, Source: c.second, Use: backend.Multiply},
		}
		r := backend.Record(p)
		v := func(cols int) backend.Value { return r.New("v", kernels.F32, backend.PerToken, cols) }
		x, residual, y := v(in), v(in), v(in)
		results := []backend.Value{v(out), v(out), v(out)}
		n := backend.Norm{X: x, Residual: backend.NoValue, W: 0, Y: y, Eps: 1e-6}
		switch {
		case c.inPlace:
			n.Y = x
		case c.chained:
			r.Do(backend.Add{X: x, Into: residual, Scale: backend.NoWeight})
			n.X = residual
		}
		r.Do(n)
		order := []backend.WeightID{1, 2, 1}
		if c.first {
			order = []backend.WeightID{2, 1, 1}
		}
		for i, w := range order {
			r.Do(backend.Linear{X: n.Y, W: w, Bias: backend.NoWeight, Y: results[i]})
		}
		if c.kept {
			r.Do(backend.Softcap{X: y, Cap: 1})
		}
		r.Free(x, residual, y)
		r.Free(results...)
		if _, err := r.Program(); err != nil {
			t.Fatal(err)
		}
		l := on(t, "h100", backend.Graphs{})
		l.blas, l.fp8 = c.library, true
		list, err := l.lower(p, variant{rows: 1}, reals())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		var xs []cuda.Ptr
		for _, n := range list {
			names = append(names, n.kernel)
			if strings.HasPrefix(n.kernel, "linear_") && !strings.Contains(n.kernel, "_pack_") {
				xs = append(xs, argsOf[cuda.LinearArgs](n).X)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
			continue
		}
		if !strings.Contains(names[0], "_pack_") {
			continue
		}
		a := argsOf[cuda.NormPackArgs](list[0]) // that of a chain begins with it
		if a.PlainWords != c.also {
			t.Errorf("%s: packed also as %d, want %d", name, a.PlainWords, c.also)
		}
		if c.also > 0 && (a.Plain != reals().arenas[backend.Scratch]+cuda.Ptr(p.Values[y].Offset) || !slices.Equal(xs, []cuda.Ptr{a.Pack.Y, a.Plain, a.Pack.Y})) {
			t.Errorf("%s: packed at %#x and %#x, products read %#x", name, a.Pack.Y, a.Plain, xs)
		}
	}
}

// recordGated records the product of x and weight 0, its gating and the product with weight 1, and returns the results of the first
// two. With adapted an op is between
// the first product and the gating; with kept the first result lives until the end.
func recordGated(t *testing.T, p *backend.Program, in, wide int, paired, adapted, kept bool) (gu, act backend.Value) {
	t.Helper()
	r := backend.Record(p)
	v := func(cols int) backend.Value { return r.New("v", kernels.F32, backend.PerToken, cols) }
	x := v(in)
	gu, act = v(2*wide), v(wide)
	r.Do(backend.Linear{X: x, W: 0, Bias: backend.NoWeight, Y: gu})
	if adapted {
		r.Do(backend.Softcap{X: gu, Cap: 1})
	}
	r.Do(backend.GLU{X: gu, Y: act, Activation: backend.Activation{Paired: paired}})
	if !kept {
		r.Free(gu)
	}
	r.Do(backend.Linear{X: act, W: 1, Bias: backend.NoWeight, Y: x})
	r.Free(act, x)
	if kept {
		r.Free(gu)
	}
	if _, err := r.Program(); err != nil {
		t.Fatal(err)
	}
	return gu, act
}

// TestGated: a product gates its sums where a panel has gates and their ups, its result has no other reader, and the next
// product reads 16 bits without sums of steps. The packed rows are where the GLU's result would be.
func TestGated(t *testing.T) {
	const in, wide = 256, 192
	spec := func(name string, f kernels.Format, rows, cols int) backend.WeightSpec {
		return backend.WeightSpec{Name: name, Rows: rows, Cols: cols, Source: f, Use: backend.Multiply}
	}
	type change struct {
		down                   kernels.Format
		apart, paired, adapted bool // gates and ups are apart in W; they alternate; an op reads the sums before they are gated
		kept, fp8, library     bool
	}
	made := func(c change) *backend.Program {
		p := &backend.Program{Name: "p", Bucket: backend.Bucket{Tokens: 2048, Seqs: 1, Samples: 1}}
		p.Weights = []backend.WeightSpec{spec("up", kernels.BF16, 2*wide, in), spec("down", c.down, in, wide)}
		p.Weights[0].GateUp = !c.apart && !c.paired
		if c.fp8 {
			p.Weights[1].RoundInputs, p.Weights[1].Scaling = true, backend.PerChannel
		}
		recordGated(t, p, in, wide, c.paired, c.adapted, c.kept)
		return p
	}
	for name, c := range map[string]struct {
		change
		gated string // the rows of the lists that gate: few, many, all, none
	}{
		"halves": {change{down: kernels.BF16}, "all"}, "pairs": {change{down: kernels.MXFP4, paired: true}, "all"}, "f16": {change{down: kernels.F16}, "all"},
		"apart": {change{down: kernels.BF16, apart: true}, "none"}, "minima": {change{down: kernels.Q4_1}, "none"}, "adapted": {change{down: kernels.BF16, adapted: true}, "none"},
		"kept": {change{down: kernels.BF16, kept: true}, "none"}, "fp8": {change{down: kernels.F8E4M3, fp8: true}, "none"},
		"library": {change{down: kernels.BF16, library: true}, "few"}, "library and pairs": {change{down: kernels.BF16, library: true, paired: true}, "few"},
	} {
		l := on(t, "h100", backend.Graphs{})
		l.blas, l.fp8 = c.library, c.fp8
		p := made(c.change)
		for _, rows := range []int{1, 16, 64, 2048} {
			list, err := l.lower(p, variant{rows: rows}, reals())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, n := range list {
				names = append(names, n.kernel)
			}
			gates := c.gated == "all" || c.gated == "few" && rows <= cuda.DecodeRows
			if got := !strings.Contains(strings.Join(names, " "), "glu"); got != gates {
				t.Errorf("%s, %d rows: %v", name, rows, names)
			}
			if !gates {
				continue
			}
			up, down := argsOf[cuda.LinearArgs](list[1]), argsOf[cuda.LinearArgs](list[2])
			at := reals().arenas[backend.Scratch] + cuda.Ptr(p.Values[2].Offset)
			if up.Gated != at || down.X != at || up.Y != 0 || up.Half != map[bool]int32{false: wide}[c.paired] || up.Paired != flag(c.paired) || up.F16 != flag(c.down == kernels.F16) {
				t.Errorf("%s, %d rows: %+v, then X at %#x; %#x is the result's", name, rows, up, down.X, at)
			}
			if k := list[2].kernel; up.Words != map[bool]int32{strings.HasSuffix(k, "_wide") || strings.Contains(k, "_mid_"): 1, c.library: 2}[true] {
				t.Errorf("%s, %d rows: packed as %d for %s", name, rows, up.Words, k)
			}
		}
	}
}

// TestGatedNarrow: a product of warpgroups with 8-bit rows gates its sums and rounds them in groups of 128, if the product behind takes
// them so and alone. Its rows and their scales are where the GLU's result would be; on the way they take the place of its own.
func TestGatedNarrow(t *testing.T) {
	const in = 256
	type change struct {
		wide               int // columns of the GLU's result
		up, down           backend.Scaling
		apart, kept, wideX bool // gates and ups are apart in W; an op reads the sums; X of the first product has 16 bits
		library            bool
		device             string
	}
	block := backend.PerBlock
	for name, c := range map[string]struct {
		change
		gates bool
	}{
		"blocks":        {change{wide: 384, up: block, down: block}, true},
		"rows, blocks":  {change{wide: 384, up: backend.PerChannel, down: block}, true},
		"blocks, rows":  {change{wide: 384, up: block, down: backend.PerChannel}, false},
		"half a group":  {change{wide: 320, up: block, down: block}, false},
		"apart":         {change{wide: 384, up: block, down: block, apart: true}, false},
		"kept":          {change{wide: 384, up: block, down: block, kept: true}, false},
		"16 bits":       {change{wide: 384, up: block, down: block, wideX: true}, false},
		"library":       {change{wide: 384, up: block, down: block, library: true}, false},
		"no warpgroups": {change{wide: 384, up: block, down: block, device: "l40s"}, false},
	} {
		p := &backend.Program{Name: "p", Bucket: backend.Bucket{Tokens: 2048, Seqs: 1, Samples: 1}}
		spec := func(name string, rows, cols int, s backend.Scaling, narrow bool) backend.WeightSpec {
			return backend.WeightSpec{Name: name, Rows: rows, Cols: cols, Source: kernels.F8E4M3, Use: backend.Multiply, RoundInputs: narrow, Scaling: s}
		}
		p.Weights = []backend.WeightSpec{spec("up", 2*c.wide, in, c.up, !c.wideX), spec("down", in, c.wide, c.down, true)}
		if p.Weights[0].GateUp = !c.apart; c.wideX {
			p.Weights[0].Source, p.Weights[0].Scaling = kernels.BF16, 0
		}
		gu, act := recordGated(t, p, in, c.wide, false, false, c.kept)
		l := on(t, cmp.Or(c.device, "h100"), backend.Graphs{})
		l.blas, l.fp8 = c.library, true
		for _, rows := range []int{1, 64, 2048} {
			list, err := l.lower(p, variant{rows: rows}, reals())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, n := range list {
				names = append(names, n.kernel)
			}
			if got := !strings.Contains(strings.Join(names, " "), "glu"); got != c.gates {
				t.Errorf("%s, %d rows: %v", name, rows, names)
			}
			if !c.gates {
				continue
			}
			up, down, scratch := argsOf[cuda.LinearArgs](list[1]), argsOf[cuda.LinearArgs](list[2]), reals().arenas[backend.Scratch]
			at := scratch + cuda.Ptr(p.Values[act].Offset)
			packed, scales := cuda.Rounding{Format: kernels.F8E4M3, Group: 128}.Bytes(rows, c.wide)
			if up.Gated != at || up.GatedScales != at+cuda.Ptr(packed) || packed+scales > p.Values[act].Bytes || up.Y != scratch+cuda.Ptr(p.Values[gu].Offset) || up.Words != 1 ||
				up.GatedArrived != reals().arenas[backend.Workspace]+productCounters || down.X != up.Gated || down.Sums != up.GatedScales {
				t.Errorf("%s, %d rows: %+v, then %+v", name, rows, up, down)
			}
		}
	}
}

// reals returns addresses of arenas that differ from that of an operand that is left out.
func reals() addresses {
	at := noAddresses(&backend.Program{Weights: make([]backend.WeightSpec, 8), Classes: make([]backend.KVClass, 1)})
	for i := range at.arenas {
		at.arenas[i] = cuda.Ptr(i+1) << 44
	}
	return at
}

// argsOf returns the arguments of a launch.
func argsOf[T any](l launch) (a T) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a)), l.args)
	return a
}

// TestStoreBeside: the launch that packs attention's output gates it and stores keys and values, if nothing else reads what
// it gates and its rows are those of the keys.
func TestStoreBeside(t *testing.T) {
	const heads, kv, dim = 4, 2, 64
	class := backend.KVClass{Name: "full", Format: kernels.F8E4M3, BlockSize: 16, Layers: 1, KVHeads: kv, HeadDim: dim, MaxPages: 8, PagesPerSlab: 1}
	class.SlabBytes = class.PageBytes()
	// gate columns: 0 is no gate. kept means that an op behind the product reads the gated rows.
	launches := func(gate int, kept, sampled bool, format kernels.Format) (names string, pack cuda.StorePackArgs, symbols int) {
		p := &backend.Program{Name: "p", Classes: []backend.KVClass{class}, Bucket: backend.Bucket{Tokens: 40, Seqs: 40, Samples: 40}}
		p.Weights = []backend.WeightSpec{{Name: "out", Rows: 64, Cols: heads * dim, Source: format, Use: backend.Multiply}}
		r := backend.Record(p)
		q, k, v := r.New("q", kernels.F32, backend.PerToken, heads*dim), r.New("k", class.Format, backend.PerToken, kv*dim), r.New("v", class.Format, backend.PerToken, kv*dim)
		y, g, last := q, r.New("gate", kernels.F32, backend.PerToken, max(1, gate)), r.New("sampled", kernels.F32, backend.PerSample, heads*dim)
		rows := backend.PerToken
		if sampled {
			rows = backend.PerSample
		}
		z := r.New("z", kernels.F32, rows, 64)
		r.Do(backend.Attention{Q: q, K: k, V: v, Y: y, Heads: heads, KVHeads: kv, HeadDim: dim, Scale: 1})
		r.Do(backend.StoreKV{K: k, V: v})
		if gate > 0 {
			r.Do(backend.Gate{X: y, Gate: g})
		}
		if sampled {
			r.Do(backend.Gather{X: y, Y: last})
			y = last
		}
		r.Do(backend.Linear{X: y, W: 0, Bias: backend.NoWeight, Y: z})
		if kept {
			r.Do(backend.Softcap{X: y, Cap: 1})
		}
		r.Free(q, k, v, g, last, z)
		if _, err := r.Program(); err != nil {
			t.Fatal(err)
		}
		list, err := on(t, "h100", backend.Graphs{}).lower(p, variant{rows: 40}, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list[slices.IndexFunc(list, func(l launch) bool { return strings.HasPrefix(l.kernel, "attention_") }):] {
			if names += " " + l.kernel; strings.Contains(l.kernel, "_pack_") {
				n := l.bound(backend.Bucket{Tokens: 40, Seqs: 40, Samples: 40})
				if symbols = len(l.symbols); strings.HasPrefix(l.kernel, "store_pack_") {
					pack = *(*cuda.StorePackArgs)(unsafe.Pointer(&n.args[0]))
				}
				if want := [3]int{heads*dim/128 + int(pack.Beside.Store.Pages.KVHeads), 5, 1}; n.blocks != want || pack.Beside.Across > 0 && (l.shared != cuda.StoreShared(dim, 1) || pack.Beside.Across != heads*dim/128) {
					t.Errorf("%v blocks, want %v, %d of them for X; %d bytes of shared memory", n.blocks, want, pack.Beside.Across, l.shared)
				}
			}
		}
		return names, pack, symbols
	}
	const attention = " attention_e4m3_64_few attention_e4m3_64_many"
	for _, c := range []struct {
		gate          int
		kept, sampled bool
		format        kernels.Format
		want          string
		stored, gated bool
	}{
		{0, false, false, kernels.BF16, " store_pack_bf16 linear_bf16_64", true, false}, // Y is Q: attention does not pack
		{0, true, false, kernels.F16, " store_pack_f16 linear_f16_64", true, false},
		{heads * dim, false, false, kernels.BF16, " store_pack_bf16 linear_bf16_64", true, true},
		{heads * dim, true, false, kernels.BF16, " store_kv_8 gate linear_pack_bf16 linear_bf16_64 softcap", false, false},
		{1, false, false, kernels.BF16, " store_kv_8 gate linear_pack_bf16 linear_bf16_64", false, false},
		{0, false, true, kernels.BF16, " store_kv_8 gather linear_pack_bf16 linear_bf16_64", false, false},
		{0, false, false, kernels.F32, " store_kv_8 linear_f32", false, false},
	} {
		names, pack, symbols := launches(c.gate, c.kept, c.sampled, c.format)
		if c.kept && c.gate == 0 {
			c.want += " softcap"
		}
		if names != attention+c.want {
			t.Errorf("%+v:%s, want%s%s", c, names, attention, c.want)
		}
		if (pack.Beside.Across > 0) != c.stored || (pack.Beside.Store.Rows == 40) != c.stored || (pack.Gate != 0) != c.gated || c.stored && symbols != 3 {
			t.Errorf("%+v: %+v, %d symbols", c, pack, symbols)
		}
	}
}

// TestAttentionPacks: attention, or the launch that joins it, packs its output in place for a product that alone reads it. Keys
// and values are stored by the launch that joins, or by a norm behind the product, unless an op before that writes over them.
func TestAttentionPacks(t *testing.T) {
	const heads, kv, cols = 4, 2, 64
	type change struct {
		dim                        int
		gated, fp8, reused, noNorm bool // reused: the product's result has the memory of keys and values
		kept, over                 bool // an op behind reads the norm's rows; they have the memory of keys and values
		f32                        bool // keys and values, whose launches have no lists
	}
	for _, c := range []struct {
		change
		rows int
		want string
	}{
		{change{dim: 64}, 1, "attention_bf16_64_few linear_bf16_8 norm_pack_bf16+ linear_bf16_8"},
		{change{dim: 128, kept: true}, 16, "attention_bf16_128_few linear_bf16_16 norm_pack_bf16+ linear_bf16_16 softcap"},
		{change{dim: 64, over: true}, 1, "attention_bf16_64_few linear_bf16_8 norm_pack_bf16+ linear_bf16_8"},
		{change{dim: 64, over: true, kept: true}, 1, "attention_bf16_64_few linear_bf16_8 store_kv_16 norm_pack_bf16 linear_bf16_8 softcap"},
		{change{dim: 64, reused: true}, 1, "attention_bf16_64_few store_kv_16 linear_bf16_8 norm_pack_bf16 linear_bf16_8"},
		{change{dim: 64, noNorm: true}, 1, "attention_bf16_64_few linear_bf16_8 store_kv_16"},
		{change{dim: 64, gated: true}, 1, "attention_bf16_64_few store_pack_bf16+ linear_bf16_8 norm_pack_bf16 linear_bf16_8"},
		{change{dim: 64, fp8: true}, 1, "attention_bf16_64_few store_pack_f8_e4m3+ linear_f8_e4m3_x8_mid_16 norm_pack_bf16 linear_bf16_8"},
		{change{dim: 72}, 1, "attention_bf16_128_few store_pack_bf16+ linear_bf16_8 norm_pack_bf16 linear_bf16_8"},
		{change{dim: 256}, 1, "attention_bf16_256_few linear_bf16_8 norm_pack_bf16+ linear_bf16_8"},
		{change{dim: 512, gated: true}, 1, "attention_bf16_512_few store_pack_bf16+ linear_bf16_8 norm_pack_bf16 linear_bf16_8"},
		{change{dim: 64, f32: true}, 1, "attention_f32 attention_join+ linear_bf16_8 norm_pack_bf16 linear_bf16_8"},
		{change{dim: 64, f32: true, gated: true, reused: true}, 1, "attention_f32 attention_join+ linear_bf16_8 norm_pack_bf16 linear_bf16_8"},
		{change{dim: 256}, 512, "attention_bf16_256_few attention_bf16_256_wide linear_bf16_wide norm_pack_bf16+ linear_bf16_wide"},
	} {
		class := backend.KVClass{Name: "full", Format: kernels.BF16, BlockSize: 16, Layers: 1, KVHeads: kv, HeadDim: c.dim, MaxPages: 256, PagesPerSlab: 1}
		if c.f32 {
			class.Format = kernels.F32
		}
		class.SlabBytes = class.PageBytes()
		p := &backend.Program{Name: "p", Classes: []backend.KVClass{class}, Bucket: backend.Bucket{Tokens: 512, Seqs: 8, Samples: 8}}
		p.Weights = []backend.WeightSpec{
			{Name: "out", Rows: cols, Cols: heads * c.dim, Source: kernels.BF16, Use: backend.Multiply}, {Name: "next", Rows: cols, Cols: cols, Source: kernels.BF16, Use: backend.Multiply},
		}
		if w := &p.Weights[0]; c.fp8 {
			w.Source, w.RoundInputs, w.Scaling = kernels.F8E4M3, true, backend.PerChannel
		}
		r := backend.Record(p)
		v := func(f kernels.Format, n int) backend.Value { return r.New("v", f, backend.PerToken, n) }
		x, q, k, w := v(kernels.F32, cols), v(kernels.F32, heads*c.dim), v(class.Format, kv*c.dim), v(class.Format, kv*c.dim)
		y, g := v(kernels.F32, heads*c.dim), v(kernels.F32, heads*c.dim)
		r.Do(backend.Attention{Q: q, K: k, V: w, Y: y, Heads: heads, KVHeads: kv, HeadDim: c.dim, Scale: 1})
		r.Do(backend.StoreKV{K: k, V: w})
		if c.gated {
			r.Do(backend.Gate{X: y, Gate: g})
		}
		if c.reused {
			r.Free(k)
		}
		z := v(kernels.F32, cols)
		r.Do(backend.Linear{X: y, W: 0, Bias: backend.NoWeight, Y: z})
		r.Free(y, g, q)
		if c.over {
			q = v(kernels.F32, heads*c.dim) // where it was
			r.Free(k)
		}
		n := v(kernels.F32, cols)
		if !c.noNorm {
			r.Do(backend.Norm{X: z, Residual: x, W: backend.NoWeight, Y: n})
			r.Do(backend.Linear{X: n, W: 1, Bias: backend.NoWeight, Y: z})
		}
		if c.kept {
			r.Do(backend.Softcap{X: n, Cap: 1})
		}
		r.Free(n, x, z, w)
		if c.over {
			r.Free(q)
		}
		if !c.over && !c.reused {
			r.Free(k)
		}
		if _, err := r.Program(); err != nil {
			t.Fatal(err)
		}
		l := on(t, "h100", backend.Graphs{})
		l.fp8 = c.fp8
		list, err := l.lower(p, variant{rows: c.rows}, reals())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		at := reals().arenas[backend.Scratch] + cuda.Ptr(p.Values[y].Offset)
		packed := cuda.Ptr(0)
		for i, n := range list {
			name, b := n.kernel, cuda.StoreBeside{}
			switch {
			case strings.HasPrefix(name, "store_pack"):
				b = argsOf[cuda.StorePackArgs](n).Beside
			case strings.HasPrefix(name, "norm_pack"):
				b = argsOf[cuda.NormPackArgs](n).Beside
			case name == "attention_join":
				a := argsOf[cuda.JoinArgs](n)
				if b, packed = a.Beside, a.Attention.Packed; (a.Gate != 0) != c.gated {
					t.Errorf("%+v: gated by %#x", c, a.Gate)
				}
			case strings.HasPrefix(name, "attention_"):
				packed = argsOf[cuda.AttentionArgs](n).Packed
			case packed != 0 && i < 3:
				if a := argsOf[cuda.LinearArgs](n); strings.HasPrefix(name, "linear") && (packed != at || a.X != at) {
					t.Errorf("%+v: packed at %#x, read at %#x, and the output is at %#x", c, packed, a.X, at)
				}
			}
			if b.Across > 0 {
				name += "+"
				if m := n.bound(backend.Bucket{Tokens: c.rows, Seqs: 8, Samples: 8}); b.Store.K == 0 || n.shared != cuda.StoreShared(c.dim, int(class.Format.Bytes(1))) || m.blocks[0]+m.blocks[1] < int(b.Across)+kv+1 {
					t.Errorf("%+v: %s stores with %d bytes of shared memory, %v blocks, from %d on", c, name, n.shared, m.blocks, b.Across)
				}
			}
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != c.want && got != strings.Replace(c.want, "_few", "_few attention_bf16_64_many", 1) {
			t.Errorf("%+v: %s, want %s", c.change, got, c.want)
		}
	}
}

// TestChains: norms and sums in a row are one launch with the norm that is packed behind them, unless an op behind it reads
// what they leave, or epsilons differ.
func TestChains(t *testing.T) {
	const cols = 4096
	vector := func(name string, n int) backend.WeightSpec {
		return backend.WeightSpec{Name: name, Rows: 1, Cols: n, Source: kernels.F32, Use: backend.Vector}
	}
	const joined = "chain_pack_bf16 linear_bf16_8"
	for _, c := range []struct {
		name, want      string
		moe, sum, after bool
		eps             float32
		kinds           int32
	}{
		{name: "post", want: joined, kinds: cuda.ChainPost},
		{name: "post, scaled sum", want: joined, sum: true, kinds: cuda.ChainPost},
		{name: "mixture", want: joined, moe: true, sum: true, kinds: cuda.ChainJoined | cuda.ChainPost},
		{name: "read", want: "norm_rows norm_pack_bf16 linear_bf16_8 softcap", after: true},
		{name: "epsilon", want: "norm_rows norm_pack_bf16 linear_bf16_8", eps: 1},
		{name: "epsilon of a mixture", want: "norm_rows norm_rows add norm_rows " + joined, moe: true, sum: true, eps: 1},
	} {
		p := &backend.Program{Name: "p", Bucket: backend.Bucket{Tokens: 8, Seqs: 8, Samples: 8}}
		p.Weights = []backend.WeightSpec{
			{Name: "w", Rows: 64, Cols: cols, Source: kernels.BF16, Use: backend.Multiply},
			vector("own", cols), vector("other", cols), vector("post", cols), vector("norm", cols), vector("scale", 1),
		}
		r := backend.Record(p)
		v := func(n int) backend.Value { return r.New("v", kernels.F32, backend.PerToken, n) }
		none := backend.NoValue
		q, x, e, d, y, z := v(1), v(cols), v(cols), v(cols), v(cols), v(64) // the first is at 0
		norm := func(x backend.Value, w backend.WeightID, eps float32) {
			r.Do(backend.Norm{X: x, Residual: none, W: w, Eps: eps, Y: x})
		}
		if c.moe {
			norm(d, 1, c.eps)
			norm(e, 2, 0)
			r.Do(backend.Add{X: e, Into: d, Scale: backend.NoWeight})
		}
		norm(d, 3, c.eps)
		last := backend.Norm{X: d, Residual: x, W: 4, Y: y}
		if c.sum {
			r.Do(backend.Add{X: d, Into: x, Scale: 5})
			last.X, last.Residual = x, none
		}
		r.Do(last)
		if !c.after {
			r.Free(d, e)
		}
		r.Do(backend.Linear{X: y, W: 0, Bias: backend.NoWeight, Y: z})
		if c.after {
			r.Do(backend.Softcap{X: d, Cap: 1})
			r.Free(d, e)
		}
		r.Free(q, x, y, z)
		if _, err := r.Program(); err != nil {
			t.Fatal(err)
		}
		at := noAddresses(p)
		at.arenas[backend.Weights] = 1 << 40
		list, err := on(t, "h100", backend.Graphs{}).lower(p, variant{rows: 8}, at)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range list {
			if names = append(names, l.kernel); l.kernel != "chain_pack_bf16" {
				continue
			}
			a := *(*cuda.ChainPackArgs)(unsafe.Pointer(&l.args[0]))
			of := func(v backend.Value) cuda.Ptr { return cuda.Ptr(p.Values[v].Offset) }
			if a.Kinds != c.kinds || (a.Norm.Pack.X != of(d) || a.Norm.Residual != of(x) || (a.SumScale != 0) != c.sum || (a.WPost != 0) != (c.kinds&cuda.ChainPost != 0)) || (a.Other == of(e)) != (c.kinds&cuda.ChainJoined != 0) {
				t.Errorf("%s: %+v", c.name, a)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		for rows, threads := range map[int]int{64: 512, 128: 128} { // norms of a list have the same bits
			list, err := on(t, "h100", backend.Graphs{}).lower(p, variant{rows: rows}, at)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range list {
				if strings.HasPrefix(l.kernel, "norm_") || strings.HasPrefix(l.kernel, "chain_") {
					if l.threads[0] != threads {
						t.Errorf("%s: up to %d rows: %s has %d threads, want %d", c.name, rows, l.kernel, l.threads[0], threads)
					}
				}
			}
		}
	}
}

// TestHeadsPack: norms of segments are packed in their launch for a product that alone reads them.
func TestHeadsPack(t *testing.T) {
	for _, c := range []struct {
		segment     int
		gated, kept bool
		want        string
	}{
		{64, true, false, "heads_pack_bf16 linear_bf16_8"}, {128, false, false, "heads_pack_bf16 linear_bf16_8"},
		{64, true, true, "norm linear_pack_bf16 linear_bf16_8 softcap"}, {256, true, false, "norm linear_pack_bf16 linear_bf16_8"},
	} {
		p := &backend.Program{Name: "p", Bucket: backend.Bucket{Tokens: 8, Seqs: 8, Samples: 8}}
		p.Weights = []backend.WeightSpec{{Name: "w", Rows: 64, Cols: 512, Source: kernels.BF16, Use: backend.Multiply}}
		r := backend.Record(p)
		v := func(n int) backend.Value { return r.New("v", kernels.F32, backend.PerToken, n) }
		y, gate, z := v(512), v(512), v(64)
		r.Do(backend.Norm{X: y, Residual: backend.NoValue, W: backend.NoWeight, Y: y, Segment: c.segment, Gated: c.gated, Gate: gate})
		r.Do(backend.Linear{X: y, W: 0, Bias: backend.NoWeight, Y: z})
		if c.kept {
			r.Do(backend.Softcap{X: y, Cap: 1})
		}
		r.Free(y, gate, z)
		if _, err := r.Program(); err != nil {
			t.Fatal(err)
		}
		list, err := on(t, "h100", backend.Graphs{}).lower(p, variant{rows: 8}, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range list {
			if names = append(names, l.kernel); l.kernel != "heads_pack_bf16" {
				continue
			}
			if a := *(*cuda.HeadsPackArgs)(unsafe.Pointer(&l.args[0])); (a.Gate != 0) != c.gated || int(a.Segment) != c.segment {
				t.Errorf("%+v: %+v", c, a)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestMixtureLaunches: of few rows one launch routes and sorts, and the norm of experts' rows is that of their packing, if
// nothing else reads it: also of many rows where they are gathered.
func TestMixtureLaunches(t *testing.T) {
	for _, c := range []struct {
		rows        int
		norm, keeps bool
		want        string
		format      kernels.Format
	}{
		{1, false, false, "route_order linear_pack_bf16 linear_bf16_8 glu_pack_bf16 linear_bf16_8 experts_combine", kernels.BF16},
		{32, true, false, "route_order norm_pack_bf16 linear_bf16_8 glu_pack_bf16 linear_bf16_8 experts_combine", kernels.BF16},
		{1, true, true, "route_order norm_rows linear_pack_bf16 linear_bf16_8 glu_pack_bf16 linear_bf16_8 experts_combine softcap", kernels.BF16},
		{64, true, false, "route norm_rows experts_order linear_pack_bf16 linear_bf16_16 glu_pack_bf16 linear_bf16_16 experts_combine", kernels.BF16},
		{64, true, false, "route experts_order norm_pack_bf16 linear_mxfp4_picks_mid_32 glu_pack_bf16 linear_mxfp4_mid_32 experts_combine", kernels.MXFP4},
		{8, true, false, "route_order norm_pack_bf16 linear_mxfp4_8 glu_pack_bf16 linear_mxfp4_8 experts_combine", kernels.MXFP4},
	} {
		const cols, width, experts = 64, 96, 8
		p := &backend.Program{Name: "p", Bucket: backend.Bucket{Tokens: c.rows, Seqs: 1, Samples: 1}}
		p.Weights = []backend.WeightSpec{
			{Name: "up", Rows: 2 * width, Cols: cols, Source: c.format, Use: backend.Multiply, Experts: experts},
			{Name: "down", Rows: cols, Cols: width, Source: c.format, Use: backend.Multiply, Experts: experts},
		}
		r := backend.Record(p)
		v := func(f kernels.Format, n int) backend.Value { return r.New("v", f, backend.PerToken, n) }
		x, n, y := v(kernels.F32, cols), v(kernels.F32, cols), v(kernels.F32, cols)
		logits, ids, shares := v(kernels.F32, experts), v(kernels.I32, 2), v(kernels.F32, 2)
		r.Do(backend.Route{Logits: logits, Ids: ids, Weights: shares, Top: 2, Scale: backend.NoWeight})
		in := x
		if c.norm {
			r.Do(backend.Norm{X: x, Residual: backend.NoValue, W: backend.NoWeight, Y: n})
			in = n
		}
		r.Do(backend.Experts{X: in, Ids: ids, Weights: shares, Y: y, GateUp: 0, Down: 1, GateUpBias: backend.NoWeight, DownBias: backend.NoWeight, Top: 2, Width: width})
		if c.keeps {
			r.Do(backend.Softcap{X: n, Cap: 1})
		}
		r.Free(x, n, y, logits, ids, shares)
		if _, err := r.Program(); err != nil {
			t.Fatal(err)
		}
		list, err := on(t, "h100", backend.Graphs{}).lower(p, variant{rows: c.rows}, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range list {
			names = append(names, l.kernel)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestKernelChoices: the table in plans has exactly one line for each kernel that is
// launched.
func TestKernelChoices(t *testing.T) {
	for device, f := range map[string]kernels.Format{"a100-80g": kernels.BF16, "h100": kernels.BF16, "l40s": kernels.F32} {
		checkKernelChoices(t, on(t, device, backend.Graphs{}), layer(t, f, kernels.BF16, 512))
	}
}

func checkKernelChoices(t *testing.T, l layout, p *backend.Program) {
	t.Helper()
	table, err := l.KernelChoices(p)
	if err != nil {
		t.Fatal(err)
	}
	listed, launched := map[string]bool{}, map[string]bool{}
	for _, k := range table {
		listed[fmt.Sprint(k.Kernel, k.Splits)] = true
	}
	for _, v := range variants(p.Bucket) {
		list, err := l.lower(p, v, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			k := l.kernels[n.kernel]
			if strings.HasPrefix(k.Op, "linear") && k.Stem != "pack" && k.Name != cuda.LinearBias || (k.Op == "attention" || k.Op == "experts") && k.Format != "" {
				launched[fmt.Sprint(n.kernel, max(n.blocks[2], n.pieces.Most))] = true
			}
		}
	}
	if !maps.Equal(listed, launched) {
		t.Errorf("%s: the table has %v, launched are %v", l.facts.Device, listed, launched)
	}
}

// TestMixtureRows: experts in float32 have separate kernels for few and for many rows, and
// all launches of a mixture count the same rows.
func TestMixtureRows(t *testing.T) {
	for tokens, want := range map[int]string{
		1: "route_order experts_f32_4 glu4 experts_f32_4 experts_combine", 512: "route experts_order experts_f32_64 glu4 experts_f32_64 experts_combine",
	} {
		l, p := on(t, "h100", backend.Graphs{}), layer(t, kernels.F32, kernels.BF16, tokens)
		list, err := l.lower(p, variant{rows: tokens}, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		rows := map[int32]bool{}
		for _, n := range list {
			switch a := unsafe.Pointer(&n.args[0]); {
			case n.kernel == "route_order":
				o := (*cuda.RouteOrderArgs)(a).Order
				rows[o.Block*o.Blocks] = true
			case n.kernel == "experts_order":
				o := (*cuda.OrderArgs)(a)
				rows[o.Block*o.Blocks] = true
			case strings.HasPrefix(n.kernel, "experts_f32"):
				rows[int32(n.blocks[0]*cuda.ChooseExperts(2*tokens/8).Rows)] = true
			case n.kernel == "glu4":
				rows[(*cuda.GLUArgs)(a).Rows] = true
				if n.blocks[0]*n.threads[0]*4 < int((*cuda.GLUArgs)(a).Rows)*256 {
					t.Errorf("glu4 of %d blocks for %d rows of 256", n.blocks[0], (*cuda.GLUArgs)(a).Rows)
				}
			case n.kernel != "route" && n.kernel != "experts_combine":
				continue
			}
			names = append(names, n.kernel)
		}
		if got := strings.Join(names, " "); got != want || len(rows) != 1 {
			t.Errorf("%d tokens: %s, of %v rows", tokens, got, rows)
		}
	}
}

// TestWide: on Hopper, warpgroup kernels compute products of more than 8 rows, both dense ones and
// those of experts with as many rows each. Other devices, and formats without such
// kernels, use tiles. The first product of experts gathers rows that are packed row by row, the second takes word order, and
// tables and workspace match the plan.
func TestWide(t *testing.T) {
	for _, c := range []struct {
		device string
		f      kernels.Format
		tokens int
		want   string // kernels of the experts
		dense  string
	}{
		{"h100", kernels.MXFP4, 2048, "linear_mxfp4_picks_wide linear_mxfp4_picks_wide", "linear_mxfp4_wide"},
		{"h100", kernels.MXFP4, 512, "linear_mxfp4_picks_wide linear_mxfp4_picks_wide", "linear_mxfp4_wide"},
		{"h100", kernels.MXFP4, 64, "linear_mxfp4_picks_mid_32 linear_mxfp4_mid_32", "linear_mxfp4_mid_64"},
		{"h100", kernels.MXFP4, 16, "linear_mxfp4_picks_mid_16 linear_mxfp4_mid_16", "linear_mxfp4_mid_16"},
		{"h100", kernels.MXFP4, 8, "linear_mxfp4_8 linear_mxfp4_8", "linear_mxfp4_8"},
		{"b200", kernels.MXFP4, 16, "linear_mxfp4_8 linear_mxfp4_8", "linear_mxfp4_16"},
		{"b200", kernels.MXFP4, 512, "linear_mxfp4_tile linear_mxfp4_tile", "linear_mxfp4_tile"},
		{"h100", kernels.Q8_0, 2048, "linear_q8_0_picks_wide linear_q8_0_picks_wide", "linear_q8_0_wide"},
		{"h100", kernels.Q4_K, 2048, "linear_q4_k_tile linear_q4_k_tile", "linear_q4_k_tile"},
		{"b200", kernels.MXFP4, 2048, "linear_mxfp4_tile linear_mxfp4_tile", "linear_mxfp4_tile"},
	} {
		l, p := on(t, c.device, backend.Graphs{}), layer(t, c.f, kernels.BF16, c.tokens)
		list, err := l.lower(p, variant{rows: c.tokens}, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		experts, dense, words := []string(nil), map[string]int{}, int32(0)
		for _, n := range list {
			a := unsafe.Pointer(&n.args[0])
			switch k := l.kernels[n.kernel]; {
			case n.kernel == "linear_pack_bf16":
				words = (*cuda.PackArgs)(a).Words
			case n.kernel == "glu_pack_bf16":
				words = (*cuda.GLUPackArgs)(a).Pack.Words
			case k.Args != len(n.args) || k.Op != "linear, experts" && k.Op != "experts" || !strings.HasPrefix(n.kernel, "linear_"):
				continue
			case (*cuda.LinearArgs)(a).Experts != 0: // the first field of PicksArgs
				order := flag(strings.HasSuffix(n.kernel, "_wide") || strings.Contains(n.kernel, "_mid_"))
				if first := len(experts) == 0; strings.Contains(n.kernel, "_picks_") {
					if p := (*cuda.PicksArgs)(a); p.Order == 0 || p.Gathers != flag(first) {
						t.Errorf("%+v: %s: order at %d, gathers %d", c, n.kernel, p.Order, p.Gathers)
					}
					order += flag(first)
				}
				if experts = append(experts, n.kernel); words != order {
					t.Errorf("%+v: rows for %s packed in order %d", c, n.kernel, words)
				}
			case (*cuda.LinearArgs)(a).Out == 512: // not the head, which has the sampled rows
				dense[n.kernel]++
			}
		}
		if strings.Join(experts, " ") != c.want || dense[c.dense] != 1 || len(dense) != 1 {
			t.Errorf("%+v: experts by %v, dense by %v", c, experts, dense)
		}
		checkKernelChoices(t, l, p)
		checkOffsets(t, l, p)
	}
}

// TestVariants: every step has a list of launches; with many rows there are lists for decode
// steps.
func TestVariants(t *testing.T) {
	all := variants(backend.Bucket{Tokens: 2048, Seqs: 256, Samples: 256})
	for _, c := range []struct {
		tokens, seqs int
		want         variant
	}{
		{1, 1, variant{rows: 1}}, {2, 2, variant{rows: 8}}, {8, 1, variant{rows: 8}}, {33, 33, variant{64, true}}, {33, 2, variant{64, false}},
		{256, 256, variant{256, true}}, {300, 20, variant{512, false}}, {2048, 1, variant{2048, false}},
	} {
		b := backend.Binding{Tokens: c.tokens, Seqs: c.seqs}
		i := slices.IndexFunc(all, func(v variant) bool { return v.holds(b) })
		if i < 0 || all[i] != c.want {
			t.Errorf("%+v: %d of %+v", c, i, all)
		}
	}
	if got := variants(backend.Bucket{Tokens: 8, Seqs: 8, Samples: 8}); len(got) != 2 || got[1].rows != 8 {
		t.Errorf("%+v", got)
	}
	// The one sequence of a tower has no decode steps of many rows.
	if tower := variants(backend.Bucket{Tokens: 2048, Seqs: 1, Samples: 256}); slices.ContainsFunc(tower, func(v variant) bool { return v.decode }) {
		t.Errorf("%+v", tower)
	}
}

// TestWorkspaceOffsets: no op uses memory beyond the planned workspace, and the counters are
// in front of all data.
func TestWorkspaceOffsets(t *testing.T) {
	for _, f := range []kernels.Format{kernels.BF16, kernels.F32} {
		checkOffsets(t, on(t, "h100", backend.Graphs{}), layer(t, f, kernels.BF16, 512))
	}
}

func checkOffsets(t *testing.T, l layout, p *backend.Program) {
	t.Helper()
	most, err := l.Workspace(p)
	if err != nil {
		t.Fatal(err)
	}
	var reached int64
	for _, v := range variants(p.Bucket) {
		c := lowering{l: l, p: p, v: v}
		for _, op := range p.Ops {
			n, err := c.workspaceEnd(op)
			if err != nil || n > most || n < counters {
				t.Errorf("%s in %+v: %d of %d, %v", backend.OpName(op), v, n, most, err)
			}
			if o, ok := op.(backend.Experts); ok {
				disjoint(t, &c, o)
			}
			reached = max(reached, n)
		}
	}
	if reached != most {
		t.Errorf("a workspace of %d, %d are used", most, reached)
	}
}

// disjoint checks that inputs and outputs of each product of a mixture do not overlap, and
// that all data is before the end.
func disjoint(t *testing.T, c *lowering, o backend.Experts) {
	t.Helper()
	m, err := c.mixture(o)
	if err != nil {
		t.Fatal(err)
	}
	rows := int64(m.rows())
	hidden, out := m.hidden, m.out+m.bytes*rows*int64(m.down.Rows)
	gated := m.second.x + 4*rows*int64(o.Width)
	if m.second.packed {
		gated = m.second.end
	}
	if !m.gates {
		hidden += 2 * m.bytes * rows * int64(o.Width)
	}
	if tables := m.own + 4*int64(m.blocks); tables > m.hidden || tables > m.out || m.first.end > m.hidden {
		t.Errorf("%s, %s: tables until %d, packed rows until %d", m.first.Kernel, m.second.Kernel, tables, m.first.end)
	}
	if max(hidden, out) > m.second.x || gated > m.end {
		t.Errorf("%s, %s: rows of gates until %d, results until %d, gated until %d", m.first.Kernel, m.second.Kernel, hidden, out, gated)
	}
}

// TestMissing: an op without a kernel is rejected by name.
func TestMissing(t *testing.T) {
	l := on(t, "h100", backend.Graphs{})
	for want, edit := range map[string]func(p *backend.Program){
		"groups of 40": func(p *backend.Program) {
			w := &p.Weights[1]
			w.Source, w.Scaling, w.GroupSize, w.Cols = kernels.I8, backend.PerGroup, 40, 256
		},
		"other blocks of rows": mixed,
		"chunks":               func(p *backend.Program) { p.Bucket.Chunk = 64 },
		"with latent keys of 128+128": func(p *backend.Program) {
			k := &p.Classes[0]
			k.KVHeads, k.HeadDim, k.KeyDim = 1, 128, 128
			p.Ops = append(p.Ops[:1:1], backend.Attention{Q: 2, K: 5, V: 6, Y: 4, Heads: 2, KVHeads: 1, HeadDim: 128, Latent: 128, Scale: 1})
		},
	} {
		p := layer(t, kernels.BF16, kernels.BF16, 64)
		edit(p)
		if err := l.Runs(p.Weights, p); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	p := layer(t, kernels.BF16, kernels.BF16, 256) // 64 rows for each expert: blocks of 64 in both formats
	mixed(p)
	if _, err := l.lower(p, variant{rows: 256}, noAddresses(p)); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "other blocks of rows") {
		t.Errorf("gates in bf16, down in float32: %v", err)
	}
}

// mixed changes the second matrices of the experts to float32.
func mixed(p *backend.Program) {
	w := &p.Weights[3]
	w.Source, w.Parts = kernels.F32, []backend.Part{{Tensor: "down", Rows: w.Rows, Format: kernels.F32}}
}
