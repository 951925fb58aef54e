package backendtest

import (
	"fmt"
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// rig is a device with one program, opened as the engine opens it.
type rig struct {
	t   testing.TB
	dev backend.Device
	exe backend.Executable
	p   *backend.Program
	res backend.Reservation
}

// plan is the input of a rig.
type plan struct {
	tensors    *tensors
	bucket     backend.Bucket
	classes    []backend.KVClass
	pages      int // pages of the first class in the KV arena
	vocab      int
	bias       int
	tops       int
	swap       bool             // Swap has as many slots as KV has pages
	drafts     int              // proposals that a step verifies and makes
	outputCols int              // StepShape.OutputCols
	slots      int              // of adapters
	items      bool             // StepShape.Items
	axes       int              // positions of a token; 0: one
	tower      *backend.Program // an encoder program, compiled beside the step's
	cache      int              // its EncoderShape.Rows
	record     func(*backend.Recorder)
	weights    backend.PackedWeights // of another rig; nil: the rig packs its own
}

// class returns a class of pages, two to a slab with a gap between slabs.
func class(f kernels.Format, block, layers, heads, dim, maxPages int) backend.KVClass {
	c := backend.KVClass{
		Name: "test", Format: f, BlockSize: block, Layers: layers, KVHeads: heads, HeadDim: dim,
		PagesPerSlab: 2, MaxPages: maxPages, Plane: true,
	}
	c.SlabBytes = 2*c.PageBytes() + 64
	return c
}

// reserve returns a reservation for the plan on a layout, as the planner does.
func (s *subject) reserve(t testing.TB, pl plan) backend.Reservation {
	t.Helper()
	p := &backend.Program{Name: t.Name(), Bucket: pl.bucket, Weights: pl.tensors.specs, Classes: pl.classes, Vocab: pl.vocab, AdapterSlots: pl.slots, Axes: pl.axes}
	rec := backend.Record(p)
	pl.record(rec)
	p.Shard = backend.Whole
	backend.StoreActivations(s.layout, p)
	r := backend.Reservation{Weights: pl.tensors.specs, Classes: pl.classes, Programs: []*backend.Program{p}}
	for _, w := range pl.tensors.specs {
		packed, err := s.layout.Weight(w)
		check(t, err)
		r.Packed = append(r.Packed, packed)
		r.Arenas[backend.Weights] += packed.Bytes
	}
	n, err := s.layout.Workspace(p)
	check(t, err)
	r.Arenas[backend.Workspace], r.Arenas[backend.Scratch] = n, p.Scratch
	r.Step = backend.StepShape{
		Tokens: pl.bucket.Tokens, Seqs: pl.bucket.Seqs, Samples: pl.bucket.Samples, Vocab: pl.vocab, Bias: max(1, pl.bias), Logprobs: max(1, pl.tops), Drafts: pl.drafts, Verify: pl.drafts, OutputCols: pl.outputCols, AdapterSlots: pl.slots, Items: pl.items, Axes: pl.axes,
	}
	r.Step.Work, err = backend.WorkLists(s.layout, r.Programs)
	check(t, err)
	for _, c := range pl.classes {
		r.Step.MaxPages = append(r.Step.MaxPages, c.MaxPages)
	}
	if len(pl.classes) > 0 {
		r.Arenas[backend.KV] = pl.classes[0].Address(int32(pl.pages-1)) + pl.classes[0].PageBytes()
	}
	if pl.swap {
		r.Arenas[backend.Swap] = r.Arenas[backend.KV]
	}
	r.Arenas[backend.StepIO] = r.Step.Bytes()
	if pl.tower != nil {
		backend.StoreActivations(s.layout, pl.tower)
		n, err := s.layout.Workspace(pl.tower)
		check(t, err)
		r.Programs = append(r.Programs, pl.tower)
		r.Arenas[backend.Workspace], r.Arenas[backend.Scratch] = max(r.Arenas[backend.Workspace], n), max(r.Arenas[backend.Scratch], pl.tower.Scratch)
		r.AddEncoder(s.layout, backend.ShapeOf(pl.tower, pl.cache))
	}
	for a, n := range r.Arenas {
		r.Arenas[a] = s.layout.Round(n)
	}
	return r
}

// rig opens a device for the plan, packs its weights and compiles its program.
func (s *subject) rig(t testing.TB, pl plan) *rig {
	t.Helper()
	r := &rig{t: t, res: s.reserve(t, pl)}
	var err error
	settings := s.settings
	if pl.swap {
		settings.SwapDir = s.swapDir(t, r.res)
	}
	settings.Weights = pl.weights
	r.dev, err = s.opener.Open(s.facts, settings, r.res)
	check(t, err)
	t.Cleanup(func() {
		if err := r.dev.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	for i := range r.res.Weights {
		if pl.weights == nil && !r.res.Weights[i].Unloaded {
			check(t, r.dev.Pack(i, pl.tensors))
		}
	}
	r.p = r.res.Programs[0]
	r.exe, err = r.dev.Compile(r.p)
	check(t, err)
	return r
}

// feed is the tokens of one sequence in a step.
type feed struct {
	tokens    []int32
	at        int     // position of the first token
	pages     []int32 // pages of the whole sequence
	snapshots []int32 // its page table of snapshots
	sampled   []int   // indices of the sampled tokens
	row       backend.SampleRow
	items     [][2]int   // positions [from, to) of items
	encoded   []int32    // of each token: its encoded row, −1: none; nil: all −1
	next      []int32    // of each token: its successor's; nil: all −1
	axes      [][3]int32 // of each token: its positions of multimodal rope; nil: at, at+5, at+10 and on
}

// fill writes a step.
func (r *rig) fill(set int, feeds []feed) backend.Binding {
	s, b := r.dev.Step(set), backend.Binding{Set: set, Seqs: len(feeds)}
	s.First[0] = 0
	for seq, f := range feeds {
		for _, i := range f.sampled {
			s.Rows[b.Samples] = int32(b.Tokens + i)
			row := f.row
			row.Seq = int32(seq)
			if row.Repetition == 0 {
				row.Repetition = 1
			}
			if row.TopP == 0 {
				row.TopP = 1
			}
			if len(s.Sampling) > 0 {
				s.Sampling[b.Samples] = row
			}
			b.Samples++
		}
		for i, id := range f.tokens {
			s.Tokens[b.Tokens], s.Positions[b.Tokens], s.Seq[b.Tokens] = id, int32(f.at+i), int32(seq)
			if s.Encoded != nil {
				s.Encoded[b.Tokens], s.ItemEnd[b.Tokens] = -1, int32(f.at+i+1)
				if f.encoded != nil {
					s.Encoded[b.Tokens] = f.encoded[i]
				}
				for _, k := range f.items {
					if k[0] <= f.at+i && f.at+i < k[1] {
						s.ItemEnd[b.Tokens] = int32(k[1])
					}
				}
			}
			if s.EncodedNext != nil {
				s.EncodedNext[b.Tokens] = -1
				if f.next != nil {
					s.EncodedNext[b.Tokens] = f.next[i]
				}
			}
			for axis := range r.p.Axes {
				s.MRopePositions[r.p.Axes*b.Tokens+axis] = int32(f.at + i + 5*axis)
			}
			if f.axes != nil {
				copy(s.MRopePositions[3*b.Tokens:], f.axes[i][:])
			}
			b.Tokens++
		}
		s.First[seq+1] = int32(b.Tokens)
		for c, k := range r.p.Classes {
			table := s.Pages[c][seq*k.MaxPages : (seq+1)*k.MaxPages]
			for i := range table {
				table[i] = -1
			}
			if k.Snapshot {
				copy(table, f.snapshots)
			} else if k.Window == 0 {
				copy(table, f.pages)
			} else {
				place(k, f, table)
			}
		}
	}
	return b
}

// place writes the page table of a class with a window. Its blocks use the sequence's pages
// in turn, so that the page of a block that left the window is stored to again.
func place(k backend.KVClass, f feed, table []int32) {
	to := f.at + len(f.tokens)
	for b := k.FirstBlock(f.at); b*k.BlockSize < f.at; b++ {
		table[k.Entry(b, f.at)] = f.pages[b%len(f.pages)]
	}
	for b := k.FirstBlock(to); b*k.BlockSize < to; b++ {
		table[k.StoreEntry(b, to)] = f.pages[b%len(f.pages)]
	}
}

// run launches a step and waits for it.
func (r *rig) run(feeds ...feed) backend.Binding {
	r.t.Helper()
	b := r.fill(0, feeds)
	r.launch(b)
	return b
}

func (r *rig) launch(b backend.Binding) {
	r.t.Helper()
	check(r.t, r.dev.Launch(r.exe, b))
	check(r.t, r.dev.Wait(b.Set))
}

// bytes copies the first rows of a value.
func (r *rig) bytes(v backend.Value, rows int) []byte {
	r.t.Helper()
	i, ok := r.dev.(backend.Inspector)
	if !ok {
		r.t.Fatalf("%T is no backend.Inspector: its values cannot be read", r.dev)
	}
	in := r.p.Values[v]
	return append([]byte(nil), i.Scratch(v, r.p)[:in.Format.Bytes(int64(rows*in.Cols))]...)
}

// floats copies the first rows of a value of any plain format.
func (r *rig) floats(v backend.Value, rows int) []float32 {
	r.t.Helper()
	return decode(r.p.Values[v].Format, r.bytes(v, rows))
}

// ints copies the first rows of an I32 value.
func (r *rig) ints(v backend.Value, rows int) []int32 {
	b := r.bytes(v, rows)
	return append([]int32(nil), unsafe.Slice((*int32)(unsafe.Pointer(&b[0])), len(b)/4)...)
}

// upTo returns 0, 1 … n−1: token ids that select table rows in order.
func upTo(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

// input records Tokens and Embed: rows of a table, one per token.
func input(r *backend.Recorder, table backend.WeightID, cols int) backend.Value {
	ids := r.New("ids", kernels.I32, backend.PerToken, 1)
	x := r.New(fmt.Sprintf("x%d", table), kernels.F32, backend.PerToken, cols)
	r.Do(backend.Tokens{Out: ids})
	r.Do(backend.Embed{Ids: ids, Table: table, Y: x, Scale: 1})
	return x
}
