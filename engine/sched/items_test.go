package sched

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/sample"
)

// encodedRow returns what stands for encoded row k of an item.
func encodedRow(m *Item, k int) uint64 {
	return maphash.Comparable(hashSeed, struct {
		hash [32]byte
		n, k int
	}{m.Hash, m.Tokens, k})
}

// contentAt returns what the K and V at position p depend on beside tokens: 0 for text, the item's
// encoded row, or all rows of a run whose tokens see each other.
func contentAt(items []Item, whole bool, p int) uint64 {
	for i := range items {
		m := &items[i]
		if p < m.At || p >= m.At+m.Tokens {
			continue
		}
		if !whole {
			return encodedRow(m, p-m.At)
		}
		from, to := i, i+1
		for from > 0 && items[from-1].At+items[from-1].Tokens == items[from].At {
			from--
		}
		for to < len(items) && items[to-1].At+items[to-1].Tokens == items[to].At {
			to++
		}
		h := uint64(p - items[from].At)
		for _, m := range items[from:to] {
			for k := range m.Tokens {
				h = maphash.Comparable(hashSeed, [2]uint64{h, encodedRow(&m, k)})
			}
		}
		return h
	}
	return 0
}

// items checks the encoded rows that a row of the step reads, and that no item is split that must not be.
func (d *device) items(row *Row) error {
	q := row.Seq
	rows, ends := make([]int32, row.Count), make([]int32, row.Count)
	q.Encoded(row.From, row.Count, rows, ends)
	for k := range row.Count {
		p := row.From + k
		i := slices.IndexFunc(q.spec.Items, func(m Item) bool { return p >= m.At && p < m.At+m.Tokens })
		switch {
		case i < 0:
			if rows[k] != -1 || int(ends[k]) != p+1 {
				return fmt.Errorf("%s: position %d, of no item, has row %d and ends at %d", q.ID(), p, rows[k], ends[k])
			}
		case rows[k] < 0 || d.encoded[rows[k]] != encodedRow(&q.spec.Items[i], p-q.spec.Items[i].At):
			return fmt.Errorf("%s: row %d does not hold position %d of item %d", q.ID(), rows[k], p, i)
		case !d.encoder.Whole && int(ends[k]) != p+1 || int(ends[k]) > row.From+row.Count || d.encoder.Whole && int(ends[k]) != endOf(q.spec.Items, i):
			return fmt.Errorf("%s: position %d of item %d sees up to %d, the row ends at %d", q.ID(), p, i, ends[k], row.From+row.Count)
		}
	}
	return d.nextItem(row)
}

// nextItem checks the encoded row that the model's own head reads for the token after a row's last one.
func (d *device) nextItem(row *Row) error {
	q, p := row.Seq, row.From+row.Count
	i := slices.IndexFunc(q.spec.Items, func(m Item) bool { return p >= m.At && p < m.At+m.Tokens })
	switch n := row.NextEncoded; {
	case n < 0 && i >= 0 && d.drafts > 0 && p > q.spec.Items[i].At:
		return fmt.Errorf("%s: position %d of item %d, behind the row, has no encoded row", q.ID(), p, i)
	case n >= 0 && (i < 0 || d.drafts == 0 || d.encoded[n] != encodedRow(&q.spec.Items[i], p-q.spec.Items[i].At)):
		return fmt.Errorf("%s: row %d does not hold position %d, which is behind the row", q.ID(), n, p)
	case n >= 0:
		d.nexts++
	}
	return nil
}

// endOf returns the end of the run of item i.
func endOf(items []Item, i int) int {
	for ; i+1 < len(items) && items[i+1].At == items[i].At+items[i].Tokens; i++ {
	}
	return items[i].At + items[i].Tokens
}

// encodes checks the limits of what a step encodes.
func (g *rig) encodes(st *Step) error {
	patches, runs := 0, 0
	for i, e := range st.Encodes {
		patches += len(e.Item.Across)
		if i == 0 || st.Encodes[i-1].run != e.run {
			runs++
		}
	}
	switch w := st.Work; {
	case patches != w.Patches || len(st.Encodes) != w.Items:
		return fmt.Errorf("the step encodes %d patches of %d items and says %d of %d", patches, len(st.Encodes), w.Patches, w.Items)
	case runs > 1 && patches > g.opts.Encoder.Budget:
		return fmt.Errorf("%d patches of %d items in a step", patches, runs)
	case runs > 1 && w.StepsPerToken > 0 && len(g.flight) > 0:
		return fmt.Errorf("%d items are encoded while a step is in flight", runs)
	}
	return nil
}

// picture adds pictures to a prompt, some of them equal, some one behind the other. Their tokens are
// equal, so that only pictures tell prompts apart.
func (w *workload) picture(sp *Spec) {
	r := w.rng
	for i := range sp.Prompt {
		sp.Prompt[i] = 0
	}
	if w.opts.Encoder.Whole {
		sp.Params.PromptLogprobs = -1
	}
	for at := r.IntN(6); at < len(sp.Prompt); at += r.IntN(2) * r.IntN(8) {
		h := r.IntN(3)
		n := 1 + (h*5+1)%6
		m := Item{Hash: [32]byte{byte(h)}, At: at, Tokens: n, Pixels: make([]byte, 2*n), Across: make([]int32, 2*n), Down: make([]int32, 2*n)}
		if w.opts.CheckItems(len(sp.Prompt), append(slices.Clone(sp.Items), m), false) != nil {
			at += 1 + r.IntN(6)
			continue
		}
		sp.Items = append(sp.Items, m)
		at += n
	}
}

// TestRandomItems is TestRandomWorkloads with pictures in the prompts: none is split that must be whole,
// each is encoded before its tokens, and equal ones are encoded once while they stay in the cache.
func TestRandomItems(t *testing.T) {
	var total Stats
	var paced, split, nexts int
	for seed := range uint64(400) {
		w := newWorkload(t, seed)
		w.items = true
		w.opts.Encoder = Encoder{Rows: 6 + w.rng.IntN(30), Budget: 1 + w.rng.IntN(40), Whole: seed%3 > 0}
		g := newRig(t, w.opts, w.layout, w.slabs, w.caching).swap(w.host)
		if w.opts.ChunkedPrefill && seed%2 == 0 {
			g.s.SetPrefillLimiter(&whims{rng: w.rng, left: &paced})
		}
		seqs, err := w.run(g, 25)
		if err != nil {
			t.Fatalf("seed %d, %+v, %d slabs: %v", seed, w.opts, w.slabs, err)
		}
		for _, q := range seqs {
			if err := g.verify(q); err != nil {
				t.Fatalf("seed %d, %+v: %v", seed, w.opts, err)
			}
		}
		if u := g.s.EncoderUsage(); u.Pinned != 0 || g.pool.Share() != 0 {
			t.Fatalf("seed %d: %+v and %g of the arena are still owned", seed, u, g.pool.Share())
		}
		total.Items += g.total.Items
		total.Encoded += g.total.Encoded
		total.Preempted += g.total.Preempted
		total.CacheHits += g.total.CacheHits
		total.SwappedIn += g.total.SwappedIn
		split += g.steps
		nexts += g.dev.nexts
	}
	t.Logf("%d steps, %+v, %d chunks cut, %d before an encoded row", split, total, paced, nexts)
	if total.Encoded < 1000 || total.Items < total.Encoded || total.Preempted < 100 || total.CacheHits < 1000 || total.SwappedIn < 100 || paced < 1000 || nexts < 100 {
		t.Errorf("%+v, %d chunks cut, %d before an encoded row: the workloads test too little", total, paced, nexts)
	}
}

// TestCheckItems refuses items that could never run, by name.
func TestCheckItems(t *testing.T) {
	o := Options{MaxNumBatchedTokens: 8, Encoder: Encoder{Rows: 10, Budget: 1, Whole: true}}
	m := func(at, n int) Item {
		return Item{At: at, Tokens: n, Pixels: make([]byte, 4), Across: make([]int32, 2), Down: make([]int32, 2)}
	}
	short, grid := m(0, 4), m(0, 4)
	short.Down, grid.Columns = nil, 3
	for _, c := range []struct {
		name    string
		items   []Item
		targets bool
		split   bool
		rows    int
		item    int
		want    string
	}{
		{name: "good", items: []Item{m(0, 4), m(4, 4), m(9, 8)}, rows: 10},
		{name: "no tower", items: []Item{m(0, 4)}, want: "without a vision tower"},
		{name: "overlap", items: []Item{m(0, 4), m(3, 4)}, rows: 10, item: 1, want: "before the end of the image before it at 4"},
		{name: "beyond the prompt", items: []Item{m(0, 4), m(17, 4)}, rows: 10, item: 1, want: "exceed the prompt of 20 tokens"},
		{name: "negative", items: []Item{m(-1, 4)}, rows: 10, want: "begins at token -1"},
		{name: "larger than a step", items: []Item{m(0, 9)}, rows: 10, want: "exceed the 8 tokens of a step"},
		{name: "adjacent ones larger than a step", items: []Item{m(0, 5), m(5, 4)}, rows: 10, item: 1, want: "exceed the 8 tokens of a step"},
		{name: "split ones", items: []Item{m(0, 5), m(5, 9)}, rows: 10, split: true},
		{name: "larger than the cache", items: []Item{m(0, 11)}, rows: 10, split: true, want: "exceed the encoder cache of 10 rows"},
		{name: "positions missing", items: []Item{short}, rows: 10, want: "2 patches, at 0 rows"},
		{name: "no grid", items: []Item{grid}, rows: 10, want: "no rows of 3"},
		{name: "prompt logprobs", items: []Item{m(0, 4)}, targets: true, rows: 10, want: "leave out prompt_logprobs"},
	} {
		o.Encoder.Rows, o.Encoder.Whole = c.rows, !c.split
		err := o.CheckItems(20, c.items, c.targets)
		var wrong *ItemError
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &wrong) || wrong.Item != c.item || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestDropEncodes: what a step would encode that gets no rows is not in the cache afterwards.
func TestDropEncodes(t *testing.T) {
	w := newWorkload(t, 0)
	w.opts.Encoder = Encoder{Rows: 8, Budget: 8}
	s := newRig(t, w.opts, w.layout, w.slabs, false).s
	p := sample.Default()
	p.MaxTokens = 1
	q := NewSeq(Spec{ID: "q", Prompt: make([]int32, 6), Params: &p, Items: []Item{{At: 1, Tokens: 4, Across: make([]int32, 1), Down: make([]int32, 1)}}})
	if err := s.Add(q); err != nil {
		t.Fatal(err)
	}
	q.state, s.running, s.waiting = running, s.waiting, nil
	s.beginStep()
	s.beginItems()
	if ok, encoded := s.ensure(q, 0, 1, true); !ok || !encoded {
		t.Fatal("nothing was encoded")
	}
	if s.hold(q); s.EncoderUsage().Pinned != 4 {
		t.Errorf("%+v", s.EncoderUsage())
	}
	if st := s.finish(); st != nil || q.held != nil || s.EncoderUsage().Cached != 0 {
		t.Errorf("%+v after a step without rows", s.EncoderUsage())
	}
}

// TestPositions compares positions with those of transformers 5.23 (Qwen3_5Model.get_rope_index; the
// numbers were computed with it): an image of 2 × 3 rows, one of 4 × 2, text between them and behind.
func TestPositions(t *testing.T) {
	p := sample.Default()
	q := NewSeq(Spec{Prompt: make([]int32, 20), Params: &p, Items: []Item{{At: 2, Tokens: 6, Columns: 3}, {At: 9, Tokens: 8, Columns: 2}}})
	q.setItems(false)
	want := [3][]int32{
		{0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 6, 6, 6, 6, 6, 6, 6, 10, 11, 12, 13, 14},
		{0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 11, 12, 13, 14},
		{0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7, 10, 11, 12, 13, 14},
	}
	n := len(want[0])
	for from := range n {
		got := make([]int32, 3*(n-from))
		q.Positions(from, n-from, got)
		for k := range n - from {
			for axis := range want {
				if got[3*k+axis] != want[axis][from+k] {
					t.Fatalf("from %d: position %d, axis %d: %d, want %d", from, from+k, axis, got[3*k+axis], want[axis][from+k])
				}
			}
		}
	}
}
