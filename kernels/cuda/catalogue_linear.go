package cuda

import (
	"strings"

	"vapp.dev/kernels"
)

func packKernels() []Kernel {
	var out []Kernel
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3, kernels.I8} {
		r := Rounding{Format: f}
		for _, s := range []Source{FromRows, FromAttention, FromGLU, FromNorm, FromChain, FromHeads} {
			k := Kernel{
				r.Kernel(s), "linear", "x as " + f.String(), "pack", sizeOf[PackArgs](), 256, 0,
				"(4 + format)·rows·in", "rows·in", "TestPackX",
			}
			switch s {
			case FromAttention:
				k.Op, k.Args, k.Bytes, k.Test = "gate, store_kv, linear", sizeOf[StorePackArgs](), "(4 + format)·rows·in, (8 + format)· with a gate; keys and values as store_kv", "TestPackX, TestStoreKV"
				k.Shared = StoreShared(rowThreads, 4)
			case FromGLU:
				k.Op, k.Args, k.Bytes, k.Flops = "glu, linear", sizeOf[GLUPackArgs](), "(8 + format)·rows·in", "7·rows·in"
			case FromNorm:
				k.Op, k.Args, k.Bytes, k.Flops = "norm, linear", sizeOf[NormPackArgs](), "(4 + format)·rows·in; (12 + format)· with a residual", "5·rows·in"
			case FromHeads:
				k.Op, k.Args, k.Bytes, k.Flops = "norm, linear", sizeOf[HeadsPackArgs](), "(8 + format)·rows·in; 4· more with a gate", "10·rows·in"
			case FromChain:
				k.Op, k.Args, k.Bytes, k.Flops = "norm, add, linear", sizeOf[ChainPackArgs](), "(12 + format)·rows·in; 12· more for a norm before, 20· for two that are added", "14·rows·in"
			}
			if (s == FromNorm || s == FromChain) && !r.Narrow() {
				k.Op, k.Bytes, k.Shared = "store_kv, "+k.Op, k.Bytes+"; keys and values as store_kv", StoreShared(rowThreads, 4)
			}
			if r.byRow(s) {
				k.Threads = rowThreads
			}
			out = append(out, k)
		}
	}
	return out
}

func linearKernels() []Kernel {
	const products = "W + (2·in + 4·out)·rows"
	out := packKernels()
	add := func(l Linear, f kernels.Format, test string) {
		out = append(out, Kernel{l.Kernel, "linear, experts", f.String(), stem(f), sizeOf[LinearArgs](), l.Threads, l.Shared, products, "2·rows·in·out", test})
	}
	for _, f := range PackedFormats() {
		for _, rows := range []int{8, 16, 64, 128} {
			l, _ := ChooseLinear(f, rows)
			add(l, f, "TestLinear, TestExperts")
		}
	}
	for _, f := range []kernels.Format{kernels.F8E4M3, kernels.I8} {
		for _, rows := range []int{8, 16, 64, 128} {
			l, _ := ChooseRounded(f, rows)
			add(l, f, "TestLinearRounded")
		}
	}
	for _, f := range PackedFormats() {
		l, _ := ChooseLinear(f, 128)
		if wide := l.Wide(f, TileRows+1, "sm_90a"); wide.Kernel != l.Kernel {
			add(wide, f, "TestLinearWide, TestExperts")
			out[len(out)-1].Stem = "linear_wide"
		}
	}
	l, _ := ChooseRounded(kernels.F8E4M3, 128)
	add(l.Wide(kernels.F8E4M3, TileRows+1, "sm_90a"), kernels.F8E4M3, "TestLinearWide")
	out[len(out)-1].Stem = "linear_wide"
	for _, f := range PackedFormats() {
		for _, name := range []string{"linear_" + f.String(), "linear_" + f.String() + "_x8"} {
			for _, rows := range []int{16, 32, 64} {
				m, ok := group(name, f, rows)
				if !ok || strings.HasSuffix(name, "_x8") && f != kernels.F8E4M3 {
					continue
				}
				add(m, f, "TestLinearMid, TestExperts")
				out[len(out)-1].Stem = "linear_mid"
			}
		}
	}
	for _, k := range out {
		if p, ok := (Linear{Kernel: k.Name}).Picks(); ok {
			k.Name, k.Op, k.Stem, k.Args, k.Test = p.Kernel, "experts", "linear_picks", sizeOf[PicksArgs](), "TestPicks"
			if p.Walks() {
				k.Threads, k.Shared = p.Threads, p.Shared
			}
			out = append(out, k)
		}
	}
	for _, f := range plainFormats {
		for _, rows := range []int{8, 16} {
			l := ChoosePlain(f, rows)
			out = append(out, Kernel{l.Kernel, "linear", f.String() + ", row by row", "linear_plain", sizeOf[LinearArgs](), l.Threads, l.Shared, plainBytes(f), "2·rows·in·out", "TestLinearPlain"})
		}
	}
	out = append(out, Kernel{LinearBias, "linear", "", "linear_plain", sizeOf[LinearBiasArgs](), 256, 0, "8·rows·out", "rows·out", "TestLinearBias"})
	out = append(out, Kernel{"linear_f32", "linear", "f32", "linear", sizeOf[LinearArgs](), 256, 0, "4·(out·in·rows/4 + rows·(in + out))", "2·rows·in·out", "TestLinearF32"})
	for _, f := range []kernels.Format{kernels.F32, kernels.F16, kernels.BF16} {
		for _, rows := range []int{DecodeRows, DecodeRows + 1} {
			if l, _ := ChooseHeadLinear(f, rows); f != kernels.F32 || rows == DecodeRows {
				out = append(out, Kernel{l.Kernel, "head_linear", f.String(), "head_linear", sizeOf[HeadLinearArgs](), 256, l.Shared, "W + 4·(in + out)·heads·rows", "2·rows·in·out·heads", "TestHeadLinear"})
			}
		}
	}
	for _, f := range PackedFormats() {
		out = append(out, Kernel{"embed_packed_" + f.String(), "embed", f.String(), stem(f), sizeOf[EmbedPackedArgs](), 256, 0, "(4 + 2·format)·rows·cols", "2·rows·cols", "TestEmbedPacked"})
	}
	return out
}

// plainFormats are the formats of matrices that may be stored row by row.
var plainFormats = []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3}

// plainBytes describes the bytes that a product with such a matrix reads and writes.
func plainBytes(f kernels.Format) string {
	if f == kernels.F8E4M3 {
		return "W + (in + 4·out)·rows"
	}
	return "W + (2·in + 4·out)·rows"
}

// LinearBias is the kernel that adds a bias to the rows of a product.
const LinearBias = "linear_bias"

// LibraryProducts are the products that cuBLASLt computes if a profile asks for it. They are in
// no code here and have no Stem.
func LibraryProducts() []Kernel {
	var out []Kernel
	for _, f := range plainFormats {
		out = append(out, Kernel{ChoosePlain(f, DecodeRows+1).Kernel, "linear", f.String() + ", row by row", "", sizeOf[LibraryArgs](), 0, 0, plainBytes(f), "2·rows·in·out", "TestLibraryCUDA (engine)"})
	}
	return out
}

// stem returns the .cu file of the products of a format.
func stem(f kernels.Format) string {
	if elems, _ := f.Block(); elems == 256 {
		return "linear_k"
	}
	if f == kernels.NVFP4 {
		return "linear_nvfp4"
	}
	return "linear"
}

// Share returns the part of its limit that a product is expected to reach on a device; "" means
// no expectation. It is estimated from the machine code (outstanding loads, instructions for
// each byte of W), not measured.
func (k Kernel) Share() string {
	suffix := k.Name[strings.LastIndexByte(k.Name, '_')+1:]
	f, _ := kernels.Parse(strings.TrimSuffix(k.Format, ", row by row"))
	elems, bytes := f.Block()
	switch {
	case k.Name == "experts_f32_4":
		return "0.60 of the memory"
	case k.Name == "experts_f32_64":
		return "0.60 of float32"
	case !strings.HasPrefix(k.Stem, "linear") || k.Args != sizeOf[LinearArgs]() && k.Args != sizeOf[PicksArgs]():
		return ""
	case suffix == "wide" && elems == 32 && k.Format != kernels.MXFP4.String(): // sums of 32 are scaled
		return "0.45 of the matrix units"
	case suffix == "wide":
		return "0.60 of the matrix units"
	case suffix == "tile":
		return "0.50 of the matrix units (sm_90a, sm_100: 0.40)"
	case suffix == "f32":
		return "0.50 of the memory"
	}
	share := "0.60"
	switch {
	case bytes == 2*elems:
		share = "0.90"
	case elems <= 32 && bytes >= elems:
		share = "0.75"
	case elems == 32 && bytes <= 20:
		share = "0.70"
	}
	return share + " of the memory"
}
