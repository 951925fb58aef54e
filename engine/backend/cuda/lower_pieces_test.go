package cuda

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
)

// TestPieces: steps of few rows and of decoding have one launch of attention, others two, which take each sequence once. The
// grid of blocks of 16 rows is the same for every step of a list, decoding splits keys in every list, and the lists and partial
// results fit in what is planned. A prompt's launch has a block for every piece.
func TestPieces(t *testing.T) {
	for _, dim := range []int{64, 256, 512} {
		for device, kv := range map[string]kernels.Format{"h200": kernels.BF16, "a100-80g": kernels.F8E4M3, "l4": kernels.F16} {
			t.Run(fmt.Sprintf("%d on %s", dim, device), func(t *testing.T) {
				testPieces(t, on(t, device, backend.Graphs{}), layerOf(t, kernels.BF16, kv, 512, dim))
			})
		}
	}
}

func testPieces(t *testing.T, l layout, p *backend.Program) {
	work, err := l.WorkLists(p)
	if err != nil {
		t.Fatal(err)
	}
	workspace, err := l.Workspace(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variants(p.Bucket) {
		at := noAddresses(p)
		at.arenas[backend.Workspace], at.step.work = 1<<40, 1<<41
		list, err := l.lower(p, v, at)
		if err != nil {
			t.Fatal(err)
		}
		var found []launch
		for _, n := range list {
			if n.pieces.Rows > 0 {
				found = append(found, n)
			}
		}
		if want := map[bool]int{true: 1, false: 2}[v.few()]; len(found) != want {
			t.Fatalf("%+v: %d launches of attention, want %d", v, len(found), want)
		}
		next := 1 // tokens of a sequence that the next launch begins with
		for i, n := range found {
			w := n.pieces
			if w.From != next {
				t.Errorf("%+v: launch %d takes sequences from %d tokens, want %d", v, i, w.From, next)
			}
			next = w.To + 1
			if i == 0 && (w.Most < 2 || n.bound(backend.Bucket{Tokens: 1, Seqs: 1}).blocks != n.bound(backend.Bucket{Tokens: v.rows, Seqs: v.rows}).blocks) {
				t.Errorf("%+v: decoding has %d splits and a grid of %v", v, w.Most, n.blocks)
			}
			for _, b := range []backend.Bucket{{Tokens: 1, Seqs: 1}, {Tokens: min(v.rows, p.Bucket.Tokens), Seqs: min(v.rows, p.Bucket.Seqs)}} {
				if got := n.bound(b).blocks[0]; i == 1 && got < w.Count(b.Tokens, b.Seqs) {
					t.Errorf("%+v: prompts have %d blocks for %d pieces", v, got, w.Count(b.Tokens, b.Seqs))
				}
			}
			a := *(*cuda.AttentionArgs)(unsafe.Pointer(unsafe.SliceData(n.args)))
			tokens := min(v.rows, p.Bucket.Tokens)
			if end := int64(a.List-1<<41) + w.Bytes(tokens, min(v.rows, p.Bucket.Seqs)); end > 4*int64(work) || a.List%16 != 0 {
				t.Errorf("%+v: a list ends at %d of %d", v, end, 4*work)
			}
			if w.Most == 1 {
				continue
			}
			parts := int64(w.Tokens(tokens, min(v.rows, p.Bucket.Seqs)) * w.Most)
			values, stats := cuda.PartialBytes(int(a.Heads), int(a.Pages.HeadDim))
			if base := cuda.Ptr(1 << 40); int64(a.Partial-base)+values*parts > int64(a.Stats-base) || int64(a.Stats-base)+stats*parts > workspace || int64(a.Arrived-base)+4*int64(w.Counters(int(parts)/w.Most, int(a.Pages.KVHeads))) > counters || values*parts > partialBytes {
				t.Errorf("%+v: partial results at %d and %d, %d of %d bytes, in %d", v, a.Partial-base, a.Stats-base, parts, values+stats, workspace)
			}
		}
		if next <= min(v.rows, p.Bucket.Tokens) {
			t.Errorf("%+v: no launch takes sequences of %d tokens", v, next)
		}
	}
}

// TestLongestBlock: in a step with a prompt, one sequence of 32,768 positions beside 62 short ones costs the longest block of the
// launch for decoding its own reads spread over the blocks and one split, whatever the width of heads.
func TestLongestBlock(t *testing.T) {
	for _, dim := range []int{64, 128, 256, 512} {
		l, p := on(t, "h200", backend.Graphs{}), layerOf(t, kernels.BF16, kernels.BF16, 1024, dim)
		p.Classes[0].MaxPages = 2048
		list, err := l.lower(p, variant{rows: 1024}, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(n launch) bool { return n.pieces.Rows > 0 })
		if i < 0 {
			t.Fatalf("heads of %d have no list", dim)
		}
		n := list[i]
		b := backend.Bucket{Tokens: 575, Seqs: 64}
		grid := n.bound(b).blocks[0]
		at := func(s int) (from, count int) {
			switch s {
			case 62:
				return 0, 512
			case 63:
				return 32767, 1
			}
			return 511, 1
		}
		work := make([]int32, n.pieces.Bytes(b.Tokens, b.Seqs)/4)
		if _, ok := new(cuda.AttentionLister).Write(n.pieces, work, b.Seqs, at); !ok {
			t.Fatalf("heads of %d: the list is too short", dim)
		}
		reads := make([]int, grid)
		for i, w := range cuda.PiecesOf(work) {
			history, count := at(w.Seq)
			from, to := n.pieces.Range(w, history, count)
			reads[i%grid] += to - from
		}
		if most := 512 + 32768/grid + 32768/n.pieces.Splits(32767, 1) + cuda.AttentionKeys; slices.Max(reads) > most || slices.Max(reads) > 2048 {
			t.Errorf("heads of %d: the longest of %d blocks reads %d positions, want at most %d", dim, grid, slices.Max(reads), most)
		}
	}
}

// TestMostSplits: the splits of a model of 32 heads on 8 are bounded by the grid, by the memory of partial results, and by the
// length.
func TestMostSplits(t *testing.T) {
	l := on(t, "h200", backend.Graphs{})
	var got []int
	for _, rows := range []int{1, 8, 32, 64, 256, 512} {
		p := &backend.Program{Bucket: backend.Bucket{Tokens: 512, Seqs: 512, Samples: 512}, Classes: []backend.KVClass{{MaxPages: 8192, BlockSize: 16}}}
		o := backend.Attention{Heads: 32, KVHeads: 8, HeadDim: 128}
		c := lowering{l: l, p: p, v: variant{rows, true}}
		few := attendList{Attention: cuda.Attention{Rows: 16, Parts: 1}, AttentionPieces: cuda.AttentionPieces{Rows: 16, Group: 4, To: rows, Least: 512}}
		got = append(got, c.mostSplits(few, o, rows))
		p.Classes[0].MaxPages = 64
		got = append(got, c.mostSplits(few, o, rows))
	}
	if fmt.Sprint(got) != "[64 2 64 2 64 2 63 2 15 2 7 2]" {
		t.Error(got)
	}
}

// TestWideAttention: prompts are computed by warpgroups on sm_90a, with keys and values in 16 or 8 bits, from 256 rows of queries on; 128 tokens have as
// many here.
func TestWideAttention(t *testing.T) {
	for _, c := range []struct {
		device string
		kv     kernels.Format
		tokens int
		want   string
	}{
		{"h200", kernels.BF16, 128, "attention_bf16_64_wide"},
		{"h200", kernels.F16, 512, "attention_f16_64_wide"},
		{"h200", kernels.BF16, 127, "attention_bf16_64_many"},
		{"h200", kernels.F8E4M3, 512, "attention_e4m3_64_wide"},
		{"h200", kernels.F8E4M3, 127, "attention_e4m3_64_many"},
		{"a100-80g", kernels.BF16, 512, "attention_bf16_64_many"},
		{"b200", kernels.BF16, 512, "attention_bf16_64_many"},
	} {
		p := layer(t, kernels.BF16, c.kv, c.tokens)
		list, err := on(t, c.device, backend.Graphs{}).lower(p, variant{rows: c.tokens}, noAddresses(p))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, n := range list {
			if n.pieces.From < 2 {
				continue
			}
			found++
			rows, threads := 64, 128
			if strings.HasSuffix(c.want, "_wide") {
				rows, threads = 128, 384
			}
			if n.kernel != c.want || n.pieces.Rows != rows || n.threads[0] != threads {
				t.Errorf("%+v: %s of %d rows and %v threads", c, n.kernel, n.pieces.Rows, n.threads)
			}
		}
		if found != 1 {
			t.Errorf("%+v: %d launches for prompts", c, found)
		}
	}
}
