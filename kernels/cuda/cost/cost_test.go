package cost

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"vapp.dev/kernels/cuda"
)

// launchOf returns a launch with these arguments.
func launchOf[T any](kernel string, blocks [3]int, threads int, a T) Launch {
	return Launch{Kernel: kernel, Blocks: blocks, Threads: threads, Args: slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a)))}
}

func counted1(t *testing.T, c *Counter, l Launch) Work {
	t.Helper()
	w, err := c.Count(l)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestLinear compares a product's counts with figures by hand: bytes, operations of whole tiles, and one turn of the
// loop for each of its operations.
func TestLinear(t *testing.T) {
	a := cuda.LinearArgs{In: 4096, Out: 6144, Rows: 3, Splits: 1}
	l := launchOf("linear_bf16_8", [3]int{1, 192, 1}, 256, a)
	w := counted1(t, &Counter{}, l)
	if w.Weights != 2*4096*6144 || w.Values != 3*(2*4096+4*6144) || w.Flops != 2*3*4096*6144 || w.Issued != 2*8*4096*6144 {
		t.Errorf("%+v", w)
	}
	turns := w.Issued / w.Code.Ops
	if least := turns * w.Code.Body; w.Instructions < least || w.Instructions > 2*least {
		t.Errorf("%.0f instructions for %.0f turns of %.0f", w.Instructions, turns, w.Code.Body)
	}
	a.Scales, a.ScaleRows, a.ScaleCols = 1, 128, 128
	w = counted1(t, &Counter{}, launchOf("linear_f8_e4m3_8", [3]int{1, 192, 1}, 256, a))
	if w.Weights != 4096*6144+4*32*48 {
		t.Errorf("fp8: %+v", w)
	}
	if _, err := (&Counter{}).Count(Launch{Kernel: "linear_bf16_8", Blocks: [3]int{1, 1, 1}}); !errors.As(err, new(*UnknownKernelError)) {
		t.Errorf("without arguments: %v", err)
	}
	if _, err := (&Counter{}).Count(Launch{Kernel: "nccl", Blocks: [3]int{1, 1, 1}}); !errors.As(err, new(*UnknownKernelError)) {
		t.Errorf("a collective: %v", err)
	}
}

// TestBF16: with a flag, the bytes of activations are fewer than in float32 by two for each number that becomes bf16.
func TestBF16(t *testing.T) {
	const in, out, rows, picks = 512, 384, 5, 6
	packs := cuda.PackArgs{Rows: rows, In: in}
	norm := cuda.NormPackArgs{Residual: 1, Pack: packs} // the residual is read and written
	rope := cuda.RopeArgs{Heads: 8, KVHeads: 2, HeadDim: 64}
	for _, c := range []struct {
		kernel         string
		args           any
		flag           string
		bytes, numbers float64 // all bytes in float32; the numbers of which the flag is
	}{
		{"linear_bf16_8", cuda.LinearArgs{In: in, Out: out, Rows: rows, Splits: 1}, "YBF16", rows * (2*in + 4*out), rows * out},
		{"linear_bf16_8", cuda.LinearArgs{In: in, Out: out, Rows: rows, Splits: 3}, "YBF16", rows*(2*in+4*out) + 8*3*8*out, rows * out},
		{"linear_mxfp4_8", cuda.LinearArgs{In: in, Out: out, Rows: 32, Experts: 1}, "YBF16", picks * (2*in + 4*out), picks * out},
		{"linear_bf16_cublaslt", cuda.LibraryArgs{In: in, Out: out, Rows: rows}, "YBF16", rows * (2*in + 4*out), rows * out},
		{"norm_pack_bf16", norm, "Pack.XBF16", rows * in * (12 + 2), rows * in},
		{"chain_pack_bf16", cuda.ChainPackArgs{Norm: norm}, "Norm.Pack.XBF16", rows * in * (12 + 2), rows * in},
		{"glu_pack_bf16", cuda.GLUPackArgs{Pack: packs}, "Pack.XBF16", rows * in * (8 + 2), 2 * rows * in},
		{"norm", cuda.NormArgs{Segment: in}, "XBF16", rows * in * 8, rows * in},
		{"norm_rows", cuda.NormArgs{Segment: in, Residual: 1}, "XBF16", rows * in * 16, rows * in},
		{"add", cuda.AddArgs{N: in}, "XBF16", 12 * in, in},
		{"glu4", cuda.GLUArgs{Rows: rows, Cols: in}, "XBF16", rows * in * 12, 2 * rows * in},
		{"rope_e4m3", rope, "XBF16", rows * 64 * (8*8 + 4*5), rows * 64 * 12},
		{"rope_e4m3", rope, "QStored", rows * 64 * (8*8 + 4*5), rows * 64 * 8},
		{"attention_f16_128_few", cuda.AttentionArgs{Pages: cuda.Pages{KVHeads: 8, HeadDim: 128}, Heads: 32}, "QStored", rows * 32 * 128 * 8, rows * 32 * 128},
		{"experts_combine", cuda.CombineArgs{Cols: in, Top: 2}, "XBF16", rows * in * 12, 2 * rows * in},
		{"experts_combine", cuda.CombineArgs{Cols: in, Top: 2}, "YBF16", rows * in * 12, rows * in},
	} {
		args := reflect.New(reflect.TypeOf(c.args))
		args.Elem().Set(reflect.ValueOf(c.args))
		field := args.Elem()
		for _, name := range strings.Split(c.flag, ".") {
			field = field.FieldByName(name)
		}
		for flag, want := range []float64{c.bytes, c.bytes - 2*c.numbers} {
			field.SetInt(int64(flag))
			count := &Counter{Rows: []Row{{63, rows}}}
			counted1(t, count, launchOf("experts_order", [3]int{1, 1, 1}, 256, cuda.OrderArgs{Picks: picks, Top: 2, Experts: 4, Block: 8, Blocks: 4}))
			l := Launch{Kernel: c.kernel, Blocks: [3]int{rows, 1, 1}, Threads: 128, Args: unsafe.Slice((*byte)(args.UnsafePointer()), args.Elem().Type().Size())}
			if got := counted1(t, count, l).Values; got != want {
				t.Errorf("%s, %s %d: %g bytes, want %g", c.kernel, c.flag, flag, got, want)
			}
		}
	}
}

// TestExperts: one pick reads one expert, many read all, and a product reads what its picks reach.
func TestExperts(t *testing.T) {
	for picks, want := range map[int32]float64{1: 1, 1 << 20: 32} {
		c := &Counter{}
		counted1(t, c, launchOf("experts_order", [3]int{1, 1, 1}, 256, cuda.OrderArgs{Picks: picks, Top: 4, Experts: 32, Block: 8, Blocks: 40}))
		w := counted1(t, c, launchOf("linear_mxfp4_8", [3]int{40, 90, 1}, 256, cuda.LinearArgs{In: 2880, Out: 5760, Rows: 320, Experts: 1, Splits: 1}))
		if got := w.Weights / (2880 * 5760 * 17.0 / 32); math.Abs(got-want) > 1e-6 || w.Flops != 2*float64(picks)*2880*5760 {
			t.Errorf("%d picks read %g experts: %+v", picks, got, w)
		}
	}
}

// TestPicks: of experts with 128 rows each a third of the blocks of rows multiplies by 64; a block of the grid takes every 132nd item of the list, of
// which tiles of 64 rows are half of one. A gathering product reads what any reads, and waits less than a dense one.
func TestPicks(t *testing.T) {
	count := func(kernel string, l Launch, picks int32) Work {
		c := &Counter{}
		counted1(t, c, launchOf("experts_order", [3]int{1, 1, 1}, 256, cuda.OrderArgs{Picks: picks, Top: 8, Experts: 128, Block: 128, Blocks: 256}))
		l.Kernel = kernel
		return counted1(t, c, l)
	}
	a := cuda.LinearArgs{In: 704, Out: 2816, Rows: 256 * 128, Experts: 1, Splits: 1}
	dense := launchOf("", [3]int{256, 22, 1}, 256, a)
	h, _ := Find(h100)
	picks := launchOf("", [3]int{132, 1, 1}, 384, cuda.PicksArgs{Product: a, Gathers: 1})
	const rows, half = (16384 + 127.0*64) / 128, 64.0 // blocks of 128 rows, of 64
	for kernel, strips := range map[string]float64{"f8_e4m3": 22, "mxfp4": 11, "bf16": 11} {
		all, some := count("linear_"+kernel+"_wide", dense, 16384), count("linear_"+kernel+"_picks_wide", picks, 16384)
		items := (rows-half)*strips + half*math.Ceil(strips/2)
		if some.Bytes() != all.Bytes() || some.Flops != all.Flops || math.Abs(some.Issued/all.Issued-(16384+63.0*64)/(16384+127.0*64)) > 1e-9 {
			t.Errorf("%s: %+v, without %+v", kernel, some, all)
		}
		if some.Blocks != 132 || some.Pieces != rows*strips || math.Abs(some.Longest*items/132-math.Ceil(items/132)) > 1e-9 || some.Behind < 1 || h.resident(some) != 1 {
			t.Errorf("%s: %+v", kernel, some)
		}
		if by := some.Tiles * 4 * (some.LoadTurns*some.Code.Load.Body + some.Code.Load.Around); some.Warps != 8 || by < some.Instructions/20 || by > some.Instructions/3 {
			t.Errorf("%s: %g of %g instructions are of warps that load", kernel, by, some.Instructions)
		}
		if one, two := h.Time(some), h.Time(all); some.Turns != all.Turns || one.Seconds() > two.Seconds() || one.Seconds() < 0.3*two.Seconds() || one.Waits == 0 || one.Longest < one.Waits {
			t.Errorf("%s: %g turns and waits of %+v, without %g, %+v", kernel, some.Turns, one, all.Turns, two)
		}
	}
	if all, some := count("linear_f8_e4m3_wide", dense, 128), count("linear_f8_e4m3_picks_wide", picks, 128); some.Issued != all.Issued/2 {
		t.Errorf("single rows: %+v, without %+v", some, all)
	}
}

// attending returns the work of attention with 8 of 32 heads' keys.
func attending(t *testing.T, kernel string, splits int, window int32, rows ...Row) Work {
	a := cuda.AttentionArgs{Pages: cuda.Pages{KVHeads: 8, HeadDim: 128, KeyDim: 128}, Heads: 32, Splits: int32(splits), Window: window}
	threads := 128
	if strings.HasSuffix(kernel, "_wide") {
		threads = 384
	}
	return counted1(t, &Counter{Rows: rows}, launchOf(kernel, [3]int{100, 8, splits}, threads, a))
}

// TestAttention: keys are read once for a sequence, windows and causal masks bound what is seen, and splits share the
// longest block.
func TestAttention(t *testing.T) {
	one := attending(t, "attention_bf16_128_few", 1, 0, Row{1023, 1})
	if one.KV != 1024*8*256*2 || one.Flops != 4*32*128*1024 || one.Blocks != 8 || one.Longest != 1 {
		t.Errorf("%+v", one)
	}
	if w := attending(t, "attention_bf16_128_few", 1, 128, Row{1023, 1}); w.KV != one.KV/8 {
		t.Errorf("a window: %+v", w)
	}
	prompt := attending(t, "attention_bf16_128_many", 1, 0, Row{0, 2048})
	if pairs := 2048.0 * 2049 / 2; prompt.Flops != 4*32*128*pairs || prompt.KV != 2048*8*256*2 || prompt.Blocks != 8*128 || prompt.Issued < prompt.Flops {
		t.Errorf("a prompt: %+v", prompt)
	}
	if w := attending(t, "attention_bf16_128_wide", 1, 0, Row{0, 2048}); w.Flops != prompt.Flops || w.KV != prompt.KV || w.Blocks != 8*64 || w.Issued < w.Flops || w.Code.Unit != Warpgroup {
		t.Errorf("a prompt by warpgroups: %+v", w)
	}
	short := slices.Repeat([]Row{{511, 1}}, 64)
	mixed := append(slices.Clone(short), Row{32767, 1})
	g, _ := Find(h100)
	alone, beside, split := g.Time(attending(t, "attention_bf16_128_few", 1, 0, short...)), g.Time(attending(t, "attention_bf16_128_few", 1, 0, mixed...)), g.Time(attending(t, "attention_bf16_128_few", 64, 0, mixed...))
	if beside.Bound() != "longest block" || beside.Seconds() < 4*alone.Seconds() || split.Bound() != "memory" {
		t.Errorf("64 short sequences %v, a long one beside them %v, split %v", alone, beside, split)
	}
}

// TestPhases: what a block does one after the other takes longer than products or instructions alone, about as long as FlashAttention-3 was
// measured to take; loading warps issue instructions too.
func TestPhases(t *testing.T) {
	g, _ := Find(h100)
	w := attending(t, "attention_bf16_128_wide", 1, 0, Row{0, 16384})
	at := g.Time(w)
	if at.Bound() != "waits" || at.Waits < 1.2*at.Matrix || at.Waits > 1.6*at.Matrix || at.Issue > at.Waits || at.Moves > at.Waits {
		t.Errorf("bound by %s: %+v", at.Bound(), at)
	}
	loads := w.Code.Load
	if w.Tiles*128*128*128*4 != w.Issued || w.LoadTurns*loads.Bytes != 2*128*128*2/128 || w.Warps != 8 || w.Turns != w.Tiles || g.resident(w) != 1 {
		t.Errorf("%+v", w)
	}
	if by := w.Tiles * 4 * (w.LoadTurns*loads.Body + loads.Around); by < w.Instructions/10 || by > w.Instructions/3 {
		t.Errorf("%g of %g instructions are of warps that load", by, w.Instructions)
	}
	beside, _ := attended("", "", 512, 1, false).Predict()
	if waiting, _ := attended("", "", 512, 1, true).Predict(); waiting < 1.1*beside {
		t.Errorf("others' attention: %g, waiting for each group of products %g", beside, waiting)
	}
	eight := attending(t, "attention_e4m3_128_wide", 1, 0, Row{0, 16384})
	if eight.KV != w.KV/2 || eight.Code.Load.Waits != 1 || eight.LoadTurns*eight.Code.Load.Bytes != 2*128*128/128 {
		t.Errorf("8 bits: %+v", eight)
	}
	tile := counted1(t, &Counter{}, launchOf("linear_bf16_wide", [3]int{16, 16, 1}, 256, cuda.LinearArgs{In: 4096, Out: 4096, Rows: 2048, Splits: 1}))
	if one := g.Time(tile); one.Waits < 1.02*one.Matrix || tile.Turns != tile.Blocks*64 || g.resident(tile) != 1 {
		t.Errorf("a product's tiles: %+v of %+v", one, tile)
	}
	gates := counted1(t, &Counter{}, launchOf("linear_bf16_wide", [3]int{16, 16, 1}, 256, cuda.LinearArgs{In: 4096, Out: 4096, Rows: 2048, Splits: 1, Gated: 1}))
	if more := gates.Instructions - tile.Instructions; more < 256*8*32*4*10 || more > 256*8*32*4*40 { // of a warp's 32 pieces, with four numbers each
		t.Errorf("gating takes %.0f instructions more than storing sums", more)
	}
	if g.Time(gates).Waits < 1.03*g.Time(tile).Waits {
		t.Errorf("tiles that gate: %+v, that do not: %+v", g.Time(gates), g.Time(tile))
	}
	mid := counted1(t, &Counter{}, launchOf("linear_mxfp4_mid_16", [3]int{1, 64, 1}, 256, cuda.LinearArgs{In: 4096, Out: 16384, Rows: 16, Splits: 1}))
	if g.resident(mid) != 2 {
		t.Errorf("blocks at once: %+v", mid)
	}
}

// TestBlocks compares what blocks do one after the other, and what they move, with figures by hand, on a multiprocessor of one instruction a
// second and scheduler, 10 operations, 4 bytes in shared memory and 2 from the second cache.
func TestBlocks(t *testing.T) {
	g := GPU{Capability: "9.0", SMs: 1, Clock: 1, BF16: 10, Bandwidth: 1e9, Shares: Shares{Memory: 1, Sync: 1, Warpgroup: 1, Issue: 1, L2: 1, SM: 2, Banks: 4, Latency: 7, Meet: 3}}
	work := func(change func(*Work)) Work {
		w := Work{Blocks: 2, Warps: 2, Turns: 3, Block: Block{2, 120 << 10}, Longest: 1, Code: Code{Unit: Warpgroup, Ops: 20, Body: 10, Shared: 8, Loads: 0.25}}
		for to, text := range map[*[]Step]string{&w.Code.Turn: "6b/1,4w0", &w.Code.Ends: "10/1,2w0,8"} {
			steps, err := stepsOf(text, w.Code.Ops)
			if err != nil {
				t.Fatal(err)
			}
			*to = steps
		}
		change(&w)
		return w
	}
	loading := Loading{Bytes: 0.01, Body: 2, Around: 1}
	for _, c := range []struct {
		name         string
		change       func(*Work)
		waits, moves float64
	}{
		// A turn: 3 seconds for 6 instructions of two warps, 3 to meet, 4 for the products, beside which there are 2 of instructions: 10. Around: 5,
		// 4 and 4, of which a turn is 10: 3. The second block begins with a read: 3·10 + 2·3 + 7.
		{"alone", func(*Work) {}, 43, 24},
		// Around: 15, 4 and 4, of which a turn is 10: 13. A warpgroup alone: 1.5, 3 and 2, and around 7.5, 2 and 2, 5 more than a turn. If the other is half a
		// turn behind, half of a turn of 6.5 is beside that, where both would have taken 5.
		{"behind", func(w *Work) { w.Behind, w.Code.Ends[0].Instructions = 0.5, 30 }, 30 + 2*8 + 7, 24},
		{"two blocks at once", func(w *Work) { w.Block.Shared = 113 << 10 }, 36.0 / 2, 24},
		{"shared memory", func(w *Work) { w.Code.Shared = 80 }, 120 + 6 + 7, 120}, // 3 turns of 2 warps, 80 bytes at 4 a second
		{"from the second cache", func(w *Work) { w.Code.Loads = 2 }, 192 + 6 + 7, 192},
		// Warps that load have 5 instructions a turn of 10, half of the slots of a scheduler. A turn: 6 and 3 and 4, around: 10, 4, 8, of which 13 are
		// a turn: 9. No block begins with a read.
		// Products of mma.sync, 4 seconds, beside the 5 of the turn's instructions; 3 to meet, and 8 instructions more around: 3·8 + 2·4 + 7.
		{"mma.sync", func(w *Work) {
			w.Code.Unit, w.Code.Loads = Sync, 0
			w.Code.Turn, w.Code.Ends = []Step{{Instructions: 10, Meets: 1, Ops: 20, Leaves: -1}}, []Step{{Instructions: 18, Ops: 20, Leaves: -1}}
		}, 3*8 + 2*4 + 7, 12},
		{"warps that load", func(w *Work) { w.Code.Load, w.Tiles, w.LoadTurns, w.Code.Loads = loading, 3, 2, 0 }, 3*13 + 2*9, 12},
		{"that wait", func(w *Work) {
			w.Code.Load, w.Tiles, w.LoadTurns, w.Code.Loads = loading, 3, 2, 0
			w.Code.Load.Waits = 2
		}, 3*5 + 3*2*2*7, 12},
		{"that bring much", func(w *Work) { // 3 tiles, 2 turns of 4 warps each
			w.Code.Load, w.Tiles, w.LoadTurns, w.Code.Loads = loading, 3, 2, 0
			w.Code.Load.Bytes = 1
		}, 3*2*4*32/2 + 2*9, 3 * 2 * 4 * 32 / 2},
	} {
		w := work(c.change)
		if at := g.Time(w); math.Abs(at.Waits-c.waits) > 1e-9 || math.Abs(at.Moves-c.moves) > 1e-9 {
			t.Errorf("%s: %g and %g, want %g and %g", c.name, at.Waits, at.Moves, c.waits, c.moves)
		}
	}
}

// TestResident: warps, registers and shared memory bound the blocks that a multiprocessor has at once.
func TestResident(t *testing.T) {
	for _, c := range []struct {
		capability string
		block      Block
		registers  float64
		want       float64
	}{{"9.0", Block{}, 0, 64}, {"9.0", Block{8, 0}, 0, 8}, {"8.9", Block{8, 0}, 0, 6}, {"9.0", Block{8, 0}, 128, 2}, {"9.0", Block{8, 0}, 129, 1},
		{"9.0", Block{8, 112 << 10}, 128, 2}, {"8.9", Block{8, 96 << 10}, 128, 1}, {"8.0", Block{8, 96 << 10}, 128, 1}, {"8.9", Block{64, 200 << 10}, 255, 1}} {
		w := Work{Block: c.block, Code: Code{Registers: c.registers}}
		if n := (GPU{Capability: c.capability}).resident(w); n != c.want {
			t.Errorf("%+v: %g blocks", c, n)
		}
	}
	for _, g := range GPUs() {
		if capacity[g.Capability].warps == 0 {
			t.Errorf("%s: no capacity", g.Name)
		}
	}
}

// TestUnits: groups of products run one after the other beside instructions, and a wait is for all but the last ones.
func TestUnits(t *testing.T) {
	for text, want := range map[string]float64{
		"10/4,1w0":                 20, // 10, 5 operations of 2, and an instruction beside them
		"10/4,30w0":                40, // the instructions take longer
		"0/4,0/4,1w1,4w0":          20, // a wait for the first of two groups, then for the other
		"0/4,0/4,1w1,40w0,3":       53,
		"0/4,1bw0":                 101, // warps meet while the units multiply
		"0/4,1w0,1b,0/4,1w0,2bbw0": 323, // and then beside nothing
		"7":                        7,
	} {
		steps, err := stepsOf(text, 20)
		if err != nil {
			t.Fatal(err)
		}
		u := units{issue: 1, multiply: 2, meet: 100}
		u.run(steps)
		if u.now != want || stepsText(steps, 20) != text {
			t.Errorf("%s: %g, want %g (%s)", text, u.now, want, stepsText(steps, 20))
		}
	}
}

// listing returns the work of attention by a list for decoding, of 8 of 32 heads' keys on 528 blocks.
func listing(t *testing.T, p cuda.AttentionPieces, rows ...Row) Work {
	a := cuda.AttentionArgs{Pages: cuda.Pages{KVHeads: 8, HeadDim: 128, KeyDim: 128}, Heads: 32, Splits: 1, Most: int32(p.Most)}
	l := launchOf("attention_bf16_128_few", [3]int{66, 8, 1}, 128, a)
	l.Pieces = p
	return counted1(t, &Counter{Rows: rows}, l)
}

// TestAttentionLists: by a list, a long sequence beside short ones takes about as long as its own reads, the launch for decoding
// leaves prompts to the other one, and splits cost the bytes of their partial results.
func TestAttentionLists(t *testing.T) {
	p := cuda.AttentionPieces{Rows: 16, Group: 4, From: 1, To: 1, Least: 512, Most: 63}
	short := slices.Repeat([]Row{{511, 1}}, 64)
	mixed := append(slices.Clone(short), Row{32767, 1}, Row{0, 512})
	g, _ := Find(h100)
	alone, beside := listing(t, p, short...), listing(t, p, mixed...)
	if beside.KV != 2*alone.KV || beside.Longest > 1.1 {
		t.Errorf("64 short sequences %+v, a long one beside them %+v", alone, beside)
	}
	if one, two := g.Time(alone), g.Time(beside); two.Bound() == "longest block" || two.Seconds() > 2.2*one.Seconds() {
		t.Errorf("64 short sequences %v, a long one beside them %v", one, two)
	}
	if alone.Values != 64*4*32*256 || beside.Values != 65*4*32*256+63*2*4*32*130 {
		t.Errorf("activations and partial results: %g, %g", alone.Values, beside.Values)
	}
	l := launchOf("attention_bf16_128_wide", [3]int{66, 8, 1}, 384, cuda.AttentionArgs{Pages: cuda.Pages{KVHeads: 8, HeadDim: 128, KeyDim: 128}, Heads: 32, Splits: 1, Most: 1})
	l.Pieces = cuda.AttentionPieces{Rows: 128, Group: 4, From: 2, To: 1 << 20, Least: 512, Most: 1}
	if w := counted1(t, &Counter{Rows: mixed}, l); w.Tiles != 8*40 || w.Turns != w.Tiles { // 16 blocks of 32 tokens, which see 1 to 4 tiles of 128 keys
		t.Errorf("a prompt by warpgroups: %+v", w)
	}
	p.From, p.To, p.Most, p.Rows = 2, 1<<20, 1, 64
	if w := listing(t, p, short...); w.Blocks != 0 || w.Issued != 0 || w.KV != 0 {
		t.Errorf("prompts in a step without any: %+v", w)
	}
}

// TestTime: more bytes, operations or instructions never take less time, and a launch without work takes the gap.
func TestTime(t *testing.T) {
	for _, g := range GPUs() {
		base := Work{Weights: 1e8, Values: 1e5, Flops: 1e9, Issued: 1e9, Instructions: 1e6, Blocks: 1000, Longest: 1, Code: Code{Unit: Sync}}
		least := g.Time(base).Seconds()
		for name, change := range map[string]func(*Work){
			"bytes": func(w *Work) { w.Weights *= 100 }, "operations": func(w *Work) { w.Issued *= 1e6 }, "instructions": func(w *Work) { w.Instructions *= 1e6 },
			"longest": func(w *Work) { w.Longest = 1000 }, "few blocks": func(w *Work) { w.Blocks = 1 },
		} {
			w := base
			change(&w)
			if s := g.Time(w).Seconds(); s <= least {
				t.Errorf("%s, %s: %g, before %g", g.Name, name, s, least)
			}
		}
		if got := g.Time(Work{}); got.Seconds() != g.Shares.Gap {
			t.Errorf("%s: nothing takes %v", g.Name, got)
		}
		if one := g.Limit([]Work{base}); one > least {
			t.Errorf("%s: the limit %g is above the time %g", g.Name, one, least)
		}
	}
}

// TestDependent: a launch behind a kernel takes less where a GPU can launch it early, and less again if it prefetches, but
// never less than what it reads; the first launch and those beside a library's are not of that kind.
func TestDependent(t *testing.T) {
	for _, g := range GPUs() {
		w := Work{Weights: 1e8, Values: 1e5, Blocks: 1000, Longest: 1}
		plain := g.Time(w)
		w.Dependent = true
		early := g.Time(w)
		w.Prefetched = 2e7
		prefetching := g.Time(w)
		able := g.Capability[0] != '8'
		if (early.Seconds() < plain.Seconds()) != able || (prefetching.Seconds() < early.Seconds()) != able {
			t.Errorf("%s: %g plain, %g dependent, %g with what is prefetched", g.Name, plain.Seconds(), early.Seconds(), prefetching.Seconds())
		}
		if prefetching.Fixed < 0 || prefetching.Memory != plain.Memory {
			t.Errorf("%s: %+v", g.Name, prefetching)
		}
	}
	c := Counter{Rows: []Row{{Count: 1}}}
	add := Launch{Kernel: "add", Blocks: [3]int{1, 1, 1}, Threads: 256, Args: make([]byte, unsafe.Sizeof(cuda.AddArgs{}))}
	library := Launch{Kernel: "linear_bf16_cublaslt", Blocks: [3]int{1, 1, 1}, Threads: 1, Args: make([]byte, unsafe.Sizeof(cuda.LibraryArgs{}))}
	none := add
	none.Blocks[0] = 0
	for i, l := range []struct {
		Launch
		want bool
	}{{add, false}, {add, true}, {none, true}, {add, true}, {library, false}, {add, false}, {add, true}} {
		w, err := c.Count(l.Launch)
		if err != nil || w.Dependent != l.want {
			t.Errorf("launch %d, %s: dependent %v (%v)", i, l.Kernel, w.Dependent, err)
		}
	}
}

// TestDelta: decoding reads and writes each state once, and prompts are counted in chunks that begin at multiples of 64.
func TestDelta(t *testing.T) {
	a := cuda.DeltaArgs{States: cuda.States{MatrixBytes: 48 << 16}, KeyHeads: 16, ValueHeads: 48, KeyDim: 128, ValueDim: 128}
	g, _ := Find(h100)
	w := counted1(t, &Counter{Rows: slices.Repeat([]Row{{1023, 1}}, 256)}, launchOf("delta_128", [3]int{2, 48, 256}, 128, a))
	if w.KV != 2*256*48<<16 || g.Time(w).Bound() != "memory" {
		t.Errorf("%+v, bound by %s", w, g.Time(w).Bound())
	}
	a.Least = cuda.DeltaLeast
	for _, c := range []struct {
		row    Row
		chunks float64
	}{{Row{0, 2048}, 32}, {Row{63, 17}, 2}, {Row{64, 64}, 1}} {
		count := &Counter{Rows: []Row{c.row}}
		chunks := counted1(t, count, launchOf("delta_chunks", [3]int{34, 16, 1}, 128, a))
		if want := c.chunks * 4096 * (16*960 + 48*96); chunks.Issued != want || chunks.Blocks != 16*c.chunks || chunks.Instructions < want/chunks.Code.Ops {
			t.Errorf("%v: chunks %+v, want %g issued", c.row, chunks, want)
		}
		prompt := counted1(t, count, launchOf("delta_prompt", [3]int{2, 48, 1}, 128, a))
		if turns := prompt.Issued / prompt.Code.Ops; turns != c.chunks*48*8 {
			t.Errorf("%v: %g turns of the loop over chunks by warps, of %+v", c.row, turns, prompt)
		}
	}
}

// TestBegunInVain checks that the end of a piece has the products of a part of a turn that follows no more.
func TestBegunInVain(t *testing.T) {
	g, _ := Find("NVIDIA H200")
	c := Code{Unit: Warpgroup, Ops: 1 << 19, Turn: []Step{{Instructions: 1, Ops: 1 << 19, Leaves: -1}, {Instructions: 1}}}
	c.Ends = c.Turn
	turn, without := g.turn(c, 8, 0)
	c.Ends = append([]Step{{Instructions: 1, Ops: 1 << 17, Leaves: -1}}, c.Turn...)
	if _, with := g.turn(c, 8, 0); with-without < 0.24*turn || with-without > 0.27*turn {
		t.Errorf("a fourth of a turn of %.3g s takes %.3g s", turn, with-without)
	}
}
