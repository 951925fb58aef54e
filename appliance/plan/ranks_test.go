package plan_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// ranked returns the inputs of a model of the catalogue on a machine of that memory, with the fields
// behind its source.
func ranked(t testing.TB, model string, memory int64, fields string) plan.Inputs {
	t.Helper()
	p, err := schema.Parse("ranks.cue", []byte("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"ranks\"\n\tmodel: source: \""+model+"\"\n"+fields+"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	i := plan.Inputs{Profile: p, Model: catalogued(t, model), Opener: cpu.Opener{}, Facts: server}
	i.Facts.TotalBytes, i.Facts.Variants = memory, []string{"avx2"}
	if i, err = built(i); err != nil {
		t.Fatal(err)
	}
	return i
}

// everyRank returns the plan of each rank.
func everyRank(t testing.TB, p *plan.Plan) []*plan.RankPlan {
	t.Helper()
	var out []*plan.RankPlan
	for i := range p.Ranks {
		r, err := p.RankPlan(i)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// worlds are models with ways to split them. Stages of some lack a class of page.
var worlds = []struct{ model, fields string }{
	{"Qwen/Qwen2-7B-Instruct", `parallel: {tensor: 2, pipeline: 2}`},
	{"meta-llama/Llama-3.2-1B", `parallel: pipeline: 3`},
	{"openai/gpt-oss-20b", `parallel: {tensor: 2, pipeline: 3}`},
	{"google/gemma-4-31B-it", `parallel: pipeline: 4`},
	{"Qwen/Qwen3.5-27B-FP8", `parallel: {tensor: 2, pipeline: 2}, speculative: {method: "mtp", numTokens: 2}`},
	{"google/gemma-4-31B-it", `parallel: {tensor: 2, pipeline: 2}, multimodal: limits: image: 2`},
	{"Qwen/Qwen3.5-27B-FP8", `parallel: tensor: 2, speculative: {method: "mtp", numTokens: 2}, multimodal: limits: image: 2`},
	{"Qwen/Qwen3.5-27B-FP8", `parallel: pipeline: 32, memory: swapSpace: "4GiB"`},
}

// TestRanksFit: every rank of a plan has the same numbers and slabs, fits, and no rank is tighter than
// the one that the plan shows.
func TestRanksFit(t *testing.T) {
	for _, c := range worlds {
		t.Run(c.model+" "+c.fields, func(t *testing.T) {
			p := made(t, ranked(t, c.model, 96<<30, c.fields+`, maxModelLen: 8192`))
			d := p.Decisions()
			for _, r := range everyRank(t, p) {
				a := r.Account
				if n := r.Ledger.Total(); n > p.Ledger.Total() {
					t.Errorf("%v takes %d bytes, the plan shows %d", r, n, p.Ledger.Total())
				}
				if a.Slabs(r.Options.KVBytes) != d.Slabs || a.Slabs(r.Options.SwapBytes) != d.SwapSlabs || r.Options.MaxModelLen != d.MaxModelLen {
					t.Errorf("%v has %d slabs, %d of swap space, %d tokens; decided are %+v", r, a.Slabs(r.Options.KVBytes), a.Slabs(r.Options.SwapBytes), r.Options.MaxModelLen, d)
				}
				for arena, n := range r.Ledger.Arenas() {
					for k := backend.Arena(0); k < backend.NumArenas; k++ {
						if k.String() == arena && a.Reservation.Arenas[k] != n {
							t.Errorf("%v: %s: %d bytes reserved, %d in the ledger", r, arena, a.Reservation.Arenas[k], n)
						}
					}
				}
				pagesInside(t, r)
			}
		})
	}
}

// pagesInside: the first and the last page of each class of the pool are inside of the arena on each
// rank that has the class, and classes are those of the pool.
func pagesInside(t *testing.T, r *plan.RankPlan) {
	t.Helper()
	a := r.Account
	for i, c := range a.Reservation.Classes {
		in := a.ClassOf[i]
		if in < 0 || a.Whole[in].Name != c.Name || a.Pool.PagesPerSlab[in] != c.PagesPerSlab || a.WholeStep.MaxPages[in] != c.MaxPages {
			t.Errorf("%v: class %s is class %d of %+v", r, c.Name, in, a.Pool)
			continue
		}
		if c.Snapshot && (a.Reservation.Classes[c.Of].State == nil || a.Reservation.Classes[c.Of].Name+" checkpoints" != c.Name) {
			t.Errorf("%v: %s are of %s", r, c.Name, a.Reservation.Classes[c.Of].Name)
		}
		last := int32(a.Pool.Pages(in, r.Slabs) - 1)
		if end := c.Address(last) + c.PageBytes(); end > r.Options.KVBytes || c.Address(last) < 0 {
			t.Errorf("%v: page %d of %s ends at %d, the arena has %d bytes", r, last, c.Name, end, r.Options.KVBytes)
		}
		if c.Address(int32(c.PagesPerSlab)) != c.SlabBytes || int64(c.PagesPerSlab)*c.PageBytes() > c.SlabBytes {
			t.Errorf("%v: %d pages of %s overlap the next slab", r, c.PagesPerSlab, c.Name)
		}
	}
}

// TestDigest: a rank's digest is the same on a machine of other memory and cores that follows, and
// differs for every change of a decision, for another rank, and for another variant.
func TestDigest(t *testing.T) {
	const fields = `parallel: {tensor: 2, pipeline: 2}, maxModelLen: 4096, memory: kvCache: "2GiB"`
	i := ranked(t, "Qwen/Qwen2-7B-Instruct", 96<<30, fields)
	p := made(t, i)
	d := p.Decisions()
	var sent plan.Decisions
	if b, err := json.Marshal(d); err != nil {
		t.Fatal(err)
	} else if err := json.Unmarshal(b, &sent); err != nil || cmp.Diff(d, sent) != "" {
		t.Fatalf("%v: %s", err, cmp.Diff(d, sent))
	}
	other := i
	other.Facts.TotalBytes, other.Facts.Cores = 64<<30, 3
	digests := map[string]string{}
	for n := range p.Ranks {
		r, err := p.RankPlan(n)
		if err != nil {
			t.Fatal(err)
		}
		f, err := plan.Follow(other, n, sent)
		if err != nil {
			t.Fatal(err)
		}
		if r.Digest() != f.Digest() || len(r.Digest()) != 64 {
			t.Errorf("rank %d: %s by rank 0's machine, %s by another", n, r.Digest(), f.Digest())
		}
		if was, ok := digests[r.Digest()]; ok {
			t.Errorf("%v has the digest of %s", r, was)
		}
		digests[r.Digest()] = r.String()
	}
	for name, change := range map[string]func(*plan.Decisions){
		"length":   func(d *plan.Decisions) { d.MaxModelLen += 16 },
		"seqs":     func(d *plan.Decisions) { d.MaxNumSeqs-- },
		"batch":    func(d *plan.Decisions) { d.MaxNumBatchedTokens++ },
		"slabs":    func(d *plan.Decisions) { d.Slabs-- },
		"swap":     func(d *plan.Decisions) { d.SwapSlabs++ },
		"format":   func(d *plan.Decisions) { d.KVFormat = kernels.F32 },
		"block":    func(d *plan.Decisions) { d.BlockSize = 32 },
		"prefixes": func(d *plan.Decisions) { d.PrefixCaching = !d.PrefixCaching },
		"overlap":  func(d *plan.Decisions) { d.Overlap = !d.Overlap },
		"reduce":   func(d *plan.Decisions) { d.Reduce = kernels.BF16 },
		"graphs":   func(d *plan.Decisions) { d.Graphs.Sizes = []int{1} },
	} {
		d := d
		change(&d)
		r, err := p.Follow(0, d)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if was, ok := digests[r.Digest()]; ok {
			t.Errorf("%s: still the digest of %s", name, was)
		}
	}
	i.Facts.Variants = []string{"avx512", "avx2"}
	r, err := plan.Follow(i, 0, d)
	if err != nil {
		t.Fatal(err)
	}
	if was, ok := digests[r.Digest()]; ok {
		t.Errorf("another variant: still the digest of %s", was)
	}
}

// TestFollowRefusesSmallerMachine: the error names the field, the rank and both sizes.
func TestFollowRefusesSmallerMachine(t *testing.T) {
	const fields = `parallel: tensor: 2, maxModelLen: 4096`
	i := ranked(t, "Qwen/Qwen2-7B-Instruct", 64<<30, fields)
	d := made(t, i).Decisions()
	i.Facts.TotalBytes = 32 << 30
	_, err := plan.Follow(i, 1, d)
	var short *plan.RankDoesNotFitError
	var placed *schema.Error
	if !errors.As(err, &short) || !errors.As(err, &placed) || short.Rank != 1 || short.Need <= short.Have {
		t.Fatalf("%T: %v", err, err)
	}
	for _, want := range []string{"memory.utilization", "rank 1 of 2", "28.80 GiB"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	d.Slabs = 1 << 30
	if _, err := plan.Follow(i, 1, d); err == nil {
		t.Error("2^30 slabs follow")
	}
	if _, err := plan.Follow(i, 2, d); err == nil {
		t.Error("rank 2 of 2 follows")
	}
}

// TestHostRanks: ranks of one machine are planned with their part of its memory and cores, and a
// number that does not divide the ranks is refused with those that do.
func TestHostRanks(t *testing.T) {
	i := ranked(t, "meta-llama/Llama-3.2-1B", 64<<30, `parallel: {tensor: 2, pipeline: 2}, cpu: ranks: 2, memory: reserve: "1GiB"`)
	i.Facts.Cores = 8
	i.Facts.Nodes = []backend.Node{{ID: 0, CPUs: []int{0, 1, 2}}, {ID: 1, CPUs: []int{3, 4, 5, 6, 7}}}
	p := made(t, i)
	if p.Facts.TotalBytes != 32<<30 || p.Ledger.Bytes("reserve") != 512<<20 {
		t.Errorf("a rank has %d bytes and leaves %d", p.Facts.TotalBytes, p.Ledger.Bytes("reserve"))
	}
	for n, cores := range []int{3, 5, 3, 5} {
		r, err := p.RankPlan(n)
		if err != nil {
			t.Fatal(err)
		}
		if r.Facts.Cores != cores || r.Facts.TotalBytes != 32<<30 || len(r.Facts.Nodes) != 0 {
			t.Errorf("rank %d has %+v", n, r.Facts)
		}
	}
	i.Profile.CPU.Ranks = 3
	if _, err := plan.Make(i); err == nil || !strings.Contains(err.Error(), "cpu.ranks: 3 do not divide the model's 4 ranks (parallel.tensor 2 × parallel.pipeline 2); allowed: 1, 2 or 4") {
		t.Error(err)
	}
}

// TestReduce: sums travel in f32 unless the profile names bf16, and with one rank nothing does.
func TestReduce(t *testing.T) {
	for fields, want := range map[string]kernels.Format{
		``:                                       kernels.Invalid,
		`parallel: tensor: 2`:                    kernels.F32,
		`parallel: {pipeline: 2, reduce: "f32"}`: kernels.F32,
		`parallel: {tensor: 2, reduce: "bf16"}`:  kernels.BF16,
	} {
		if got := made(t, ranked(t, "meta-llama/Llama-3.2-1B", 64<<30, fields)).Options.Reduce; got != want {
			t.Errorf("%s: %v, want %v", fields, got, want)
		}
	}
}

// TestManyRanks: of more than 16 ranks equal neighbours share a line, and a plan of 1,024 makes as few
// accounts as it has different ranks.
func TestManyRanks(t *testing.T) {
	p := made(t, ranked(t, "meta-llama/Llama-3.3-70B-Instruct", 512<<30, `parallel: {tensor: 8, pipeline: 80}, maxModelLen: 8192`))
	rows, err := p.RankRows()
	if err != nil || len(rows) != 640 {
		t.Fatal(len(rows), err)
	}
	layers := 0
	for i, r := range rows {
		if r.Rank != i || r.Tensor != i%8 || r.Stage != i/8 || r.Layer0 != r.Stage || r.Total > p.Ledger.Total() {
			t.Errorf("row %d: %+v", i, r)
		}
		layers += r.Layers
	}
	if layers != 8*80 {
		t.Errorf("%d layers on 8 × 80 ranks", layers)
	}
	_, table, _ := strings.Cut(p.String(), "\nranks\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, want := range []string{
		"      0     1/8     1/80             0 ",
		"    1–7   2–8/8     1/80             0 ",
		"  8–631   1–8/8  2–79/80  1–78, 1 each ",
		"632–639   1–8/8    80/80            79 ",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no line %q in\n%s", want, table)
		}
	}
}

// TestFitsOnSeveral: a model that is too large for one device fits on the number and by the field that its
// row names, and with one device less by no field.
func TestFitsOnSeveral(t *testing.T) {
	i := on(t, "Qwen/Qwen2-7B-Instruct", `maxModelLen: "32K", memory: kvCache: "8GiB"`, "l4")
	row, err := plan.FitOn(i, "l4")
	if err != nil {
		t.Fatal(err)
	}
	if row.Fits || row.Devices != 2 || row.Parallel != "parallel.tensor: 2" || !strings.HasSuffix(row.Reason, "; fits on 2 × l4 (parallel.tensor: 2)") {
		t.Errorf("%+v", row)
	}
	if p := made(t, on(t, "Qwen/Qwen2-7B-Instruct", `maxModelLen: "32K", memory: kvCache: "8GiB", parallel: tensor: 2`, "l4")); p.Ranks != row.Devices {
		t.Errorf("%d ranks", p.Ranks)
	}
	i = on(t, "Qwen/Qwen2-7B-Instruct", `maxModelLen: "32K"`, "l4")
	if row, err := plan.FitOn(i, "l4"); err != nil || !row.Fits || row.Devices != 1 || row.Parallel != "" {
		t.Errorf("%+v, %v", row, err)
	}
}

// TestCollectives: the ledger of each rank has what exchanging values takes, and Go's limit what the control channel does.
func TestCollectives(t *testing.T) {
	one := made(t, ranked(t, "meta-llama/Llama-3.2-1B", 64<<30, `maxModelLen: 4096`))
	if one.Ledger.Bytes("collectives") != 0 {
		t.Errorf("one rank has %d bytes of collectives", one.Ledger.Bytes("collectives"))
	}
	p := made(t, ranked(t, "meta-llama/Llama-3.2-1B", 64<<30, `maxModelLen: 4096, parallel: {tensor: 2, pipeline: 2}`))
	set := p.Account.WholeStep.SetBytes()
	for n, control := range []int64{(2 + 1) * set, set, set, set} { // two sets and a frame; a frame
		r, err := p.RankPlan(n)
		if err != nil {
			t.Fatal(err)
		}
		var heap int64
		for _, it := range r.Ledger {
			for _, part := range it.Parts {
				switch it.Name + "." + part.Name {
				case "collectives.control":
					if part.Bytes != control {
						t.Errorf("rank %d: control channel of %d bytes, want %d", n, part.Bytes, control)
					}
					heap += part.Bytes
				case "runtime.go heap":
					heap += part.Bytes
				}
			}
		}
		if r.GoMemoryLimit != heap {
			t.Errorf("rank %d: Go's limit is %d, its heap is planned with %d", n, r.GoMemoryLimit, heap)
		}
		if text := r.Ledger.Bytes("text"); (n == 0) != (text > 0) {
			t.Errorf("rank %d has %d bytes of text", n, text)
		}
	}
}

// TestImagesOfRanks: each rank of the first stage has the tower and the encoder cache, the others have none, but that of a
// head that proposes tokens.
func TestImagesOfRanks(t *testing.T) {
	p := made(t, ranked(t, "google/gemma-4-31B-it", 96<<30, `maxModelLen: 4096, parallel: {tensor: 2, pipeline: 2}, multimodal: limits: image: 2`))
	if len(p.PlanOnly) > 0 {
		t.Errorf("plan-only: %v", p.PlanOnly)
	}
	set := p.Account.WholeStep.SetBytes()
	for n, want := range []struct{ first, receives bool }{{true, false}, {true, true}, {false, false}, {false, false}} {
		r, err := p.RankPlan(n)
		if err != nil {
			t.Fatal(err)
		}
		control := set
		switch {
		case n == 0:
			control *= 3
		case want.receives:
			control += engine.ItemFrames
		}
		for _, it := range r.Ledger {
			for _, part := range it.Parts {
				if it.Name == "collectives" && part.Name == "control" && part.Bytes != control {
					t.Errorf("rank %d: control channel of %d bytes, want %d", n, part.Bytes, control)
				}
			}
		}
		if has := r.Ledger.Bytes("encoded") > 0 && r.Ledger.Bytes("item") > 0; has != want.first {
			t.Errorf("rank %d: %d bytes of encoded rows, %d of an item", n, r.Ledger.Bytes("encoded"), r.Ledger.Bytes("item"))
		}
	}
	p = made(t, ranked(t, "Qwen/Qwen3.5-27B-FP8", 96<<30, `maxModelLen: 4096, parallel: pipeline: 3, speculative: {method: "mtp", numTokens: 2}, multimodal: limits: image: 2`))
	if len(p.PlanOnly) > 0 {
		t.Errorf("plan-only: %v", p.PlanOnly)
	}
	all := everyRank(t, p)
	for _, name := range []string{"encoded", "item"} {
		if first, middle, last := all[0].Ledger.Bytes(name), all[1].Ledger.Bytes(name), all[2].Ledger.Bytes(name); first == 0 || middle != 0 || last != first {
			t.Errorf("%s: %d bytes in the first stage, %d in the middle, %d in the last, whose head reads encoded rows", name, first, middle, last)
		}
	}
}

// TestDigestOfOneRank: the digest of a plan of one rank is that of its rank's plan, which makes an account of its own.
func TestDigestOfOneRank(t *testing.T) {
	for _, fields := range []string{"", "\tscheduler: {maxNumSeqs: 8, prefixCaching: false}\n\tmemory: {kvCache: \"1GiB\", swapSpace: \"64MiB\"}\n"} {
		p, err := plan.Make(ranked(t, "Qwen/Qwen2-7B-Instruct", 64<<30, fields))
		if err != nil {
			t.Fatal(err)
		}
		if r := everyRank(t, p)[0]; p.Digest() != r.Digest() {
			t.Errorf("%q: %s, of rank 0 %s", fields, p.Digest(), r.Digest())
		}
	}
}
