package plan

import (
	"sort"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/kv"
)

// Capacity is the capacity of the KV arena.
type Capacity struct {
	// Tokens is concurrency × maxModelLen. With a single class of kind full, that is the
	// number of tokens that fit all pages.
	Tokens int64 `json:"kv_tokens"`
	// GrowingTokens is how many tokens the first class holds if it has all slabs. For a hybrid
	// model that is not a capacity, since windows and states take slabs too.
	GrowingTokens int64   `json:"growing_tokens"`
	BytesPerToken int64   `json:"bytes_per_token"` // of the arena by Tokens, rounded up
	SlabBytes     int64   `json:"slab_bytes"`
	Slabs         int     `json:"slabs"`
	Classes       []Class `json:"classes"`
	Lengths       []Fit   `json:"lengths"` // the last is maxModelLen
	// Concurrency is how many sequences of maxModelLen the arena holds at steady state, as a
	// fraction: the arena's slabs divided by those of one sequence, where a page counts for its
	// share of a slab.
	Concurrency float64 `json:"concurrency"`
	// Ideal is the same without pages, slabs and rounding: each class has the exact size of
	// its tokens, a window that of its window.
	Ideal float64 `json:"ideal_concurrency"`
}

// Class is a class of KV page.
type Class struct {
	Name          string `json:"name"`
	Kind          string `json:"kind"` // full, window, chunk, state, checkpoint
	Format        string `json:"format"`
	Layers        int    `json:"layers"`
	Window        int    `json:"window,omitempty"`          // tokens, of a window or a chunk
	BytesPerToken int64  `json:"bytes_per_token,omitempty"` // of all its layers
	StateBytes    int64  `json:"state_bytes,omitempty"`     // of all its layers, one sequence
	BlockSize     int    `json:"block_size"`                // tokens
	PageBytes     int64  `json:"page_bytes"`
	PagesPerSlab  int    `json:"pages_per_slab"`
	Pages         int    `json:"pages"`          // if the class had all slabs
	SequencePages int    `json:"sequence_pages"` // of one sequence of maxModelLen, at steady state
	// Checkpoints is the most state snapshots that are kept, CheckpointEvery the tokens
	// between two of a sequence.
	Checkpoints     int `json:"checkpoints,omitempty"`
	CheckpointEvery int `json:"checkpoint_every,omitempty"`
}

// Fit is how many sequences of one length the arena holds.
type Fit struct {
	Tokens int `json:"tokens"`
	// Sequences is the number at steady state, once their prompts are computed: a window class
	// then holds the window only.
	Sequences int `json:"sequences"`
	// Admitted is how many the scheduler starts. It requires pages for all tokens of a
	// sequence and one more, and a further block for each running sequence.
	Admitted int `json:"admitted"`
	Running  int `json:"running"` // Admitted, limited by maxNumSeqs
	// Concurrency is Sequences as a fraction. Ideal is the same without pages and slabs.
	Concurrency float64 `json:"concurrency"`
	Ideal       float64 `json:"ideal"`
}

// Loss returns the share of Ideal that is lost to the rounding to pages and slabs, 0 to 1.
func (f Fit) Loss() float64 {
	if f.Ideal <= 0 {
		return 0
	}
	return max(0, 1-f.Concurrency/f.Ideal)
}

// Running returns how many sequences of that many tokens run at once, by the next longer entry
// of Lengths.
func (c Capacity) Running(tokens int) int {
	for _, f := range c.Lengths {
		if tokens <= f.Tokens {
			return f.Running
		}
	}
	return 0
}

func (w resolved) capacity(o engine.Options, a *engine.Account) Capacity {
	slabs := a.Slabs(o.KVBytes)
	c := Capacity{SlabBytes: a.KV.SlabBytes, Slabs: slabs, GrowingTokens: a.Pool.Tokens(slabs)}
	for i, s := range a.KV.Specs {
		k := a.Reservation.Classes[i]
		cl := Class{
			Name: s.Name, Kind: s.Kind.String(), Format: k.Format.String(), Layers: k.Layers, Window: k.Window, BlockSize: s.BlockSize,
			PageBytes: s.PageBytes, PagesPerSlab: a.KV.PagesPerSlab[i], Pages: a.KV.Pages(i, slabs), SequencePages: a.KV.SequencePages(i, o.MaxModelLen),
		}
		if k.State != nil {
			cl.StateBytes = exact(k, 1)
		} else {
			cl.BytesPerToken = exact(k, 1)
		}
		if k.Snapshot {
			cl.Checkpoints, cl.CheckpointEvery = a.Pool.Snapshots(slabs), a.Pool.SnapshotEvery()
		}
		c.Classes = append(c.Classes, cl)
	}
	granted := max(o.KVBytes, w.kvCache)
	if w.in.Model.Source.Build.Pipe.World > 1 {
		granted = int64(slabs) * a.Pool.SlabBytes
	}
	for _, n := range lengths(o.MaxModelLen) {
		f := Fit{Tokens: n, Sequences: a.Pool.Sequences(slabs, n), Admitted: maxAdmitted(a.Pool, slabs, n, o.MaxModelLen)}
		f.Running = min(f.Admitted, o.MaxNumSeqs)
		f.Concurrency = float64(slabs) / a.Pool.Share(n)
		f.Ideal = float64(granted) / ideal(a.Whole, n)
		c.Lengths = append(c.Lengths, f)
	}
	whole := c.Lengths[len(c.Lengths)-1]
	c.Concurrency, c.Ideal = whole.Concurrency, whole.Ideal
	if c.Tokens = c.GrowingTokens; hybrid(a.Pool) {
		c.Tokens = int64(c.Concurrency * float64(o.MaxModelLen))
	}
	if c.Tokens > 0 {
		c.BytesPerToken = (o.KVBytes + c.Tokens - 1) / c.Tokens
	}
	return c
}

// hybrid reports whether some class does not keep every token.
func hybrid(l kv.Layout) bool { return len(l.Specs) > 1 || l.Specs[0].Kind != kv.Full }

// ideal returns the bytes of one sequence of that many tokens without pages and slabs.
func ideal(classes []backend.KVClass, tokens int) float64 {
	var n float64
	for _, c := range classes {
		kept := tokens
		if c.Window > 0 {
			kept = min(kept, c.Window)
		}
		if c.Snapshot {
			continue // sequences need no snapshots
		}
		n += float64(exact(c, kept))
	}
	return n
}

// exact returns the bytes of that many tokens of one sequence in all layers of a class, without
// pages. A state takes the same whatever the tokens.
func exact(c backend.KVClass, tokens int) int64 {
	if c.State != nil {
		return int64(c.Layers) * c.State.Bytes()
	}
	key := c.HeadDim
	if c.KeyDim > 0 {
		key = c.KeyDim
	}
	return int64(c.Layers) * c.Format.Bytes(int64(tokens)*int64(c.KVHeads)*int64(key+c.HeadDim))
}

// maxAdmitted returns how many sequences of that many tokens, prompt and reply, the scheduler
// runs at once if they arrive one after the other. It admits one if there are pages for its
// prompt (all but the last token) and one more token, and for a further block of each running
// sequence. No page is for positions beyond the model length (engine/sched: the last token is
// sampled and never computed).
func maxAdmitted(l kv.Layout, slabs, tokens, longest int) int {
	block := max(1, l.Specs[0].BlockSize)
	prompt, last := max(1, tokens-1), max(1, longest-1)
	fits := func(n int) bool {
		var need int64
		for c, per := range l.PagesPerSlab {
			pages := int64(n-1)*int64(l.SequencePages(c, min(prompt+1+block, last))) + int64(l.SequencePages(c, min(prompt+1, last)))
			need += (pages + int64(per) - 1) / int64(per)
		}
		return need <= int64(slabs)
	}
	most := l.Sequences(slabs, prompt) + 1
	return sort.Search(most, func(n int) bool { return !fits(n + 1) })
}

// lengths returns the lengths that plans have a column for: round ones below the longest, and
// the longest.
func lengths(longest int) []int {
	steps := []int{1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 512 << 10}
	if longest <= steps[0] {
		steps = []int{64, 256}
	}
	var out []int
	for _, n := range steps {
		if n < longest {
			out = append(out, n)
		}
	}
	return append(out, longest)
}
