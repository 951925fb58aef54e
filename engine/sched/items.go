package sched

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"vapp.dev/engine/kv"
)

// Item is a picture of a prompt: an image or a frame of a video. An encoder turns its patches into
// Tokens rows, which take the place of the embeddings of its tokens.
type Item struct {
	Hash         [32]byte      // of its content: equal items have equal hashes
	Name         string        // its key in the block hashes of other programs; "": the hexadecimal Hash
	At, Tokens   int           // its tokens in the prompt
	Pixels       []byte        // of the patches, one after the other
	Colours      *[256]float32 // what a byte stands for
	Across, Down []int32       // column and row of each patch
	// Columns is how many encoded rows stand beside each other in the picture, for models whose
	// tokens have three positions; 0: tokens have one.
	Columns int
}

// Encoder are the limits of the items of sequences; the zero value: they have none.
type Encoder struct {
	Rows   int // encoded rows that the device holds
	Budget int // patches that a step encodes, but at least one item
	// Whole means that the tokens of an item see each other, later ones too: a step computes all
	// tokens of an item that are left or none. Items without a token between are one item then.
	Whole bool
}

// ItemError refuses an item of a prompt.
type ItemError struct {
	Item int // index
	Why  string
}

func (e *ItemError) Error() string { return fmt.Sprintf("image %d of the prompt: %s", e.Item+1, e.Why) }

// CheckItems refuses items that a scheduler with these options could never run, of a prompt of that
// many tokens. targets says that the request wants prompt logprobs. The error is an *ItemError.
func (o Options) CheckItems(prompt int, items []Item, targets bool) error {
	run := 0 // tokens of the items before without a token between
	for i := range items {
		m, end := &items[i], 0
		if i > 0 {
			end = items[i-1].At + items[i-1].Tokens
		}
		if run += m.Tokens; m.At != end || !o.Encoder.Whole {
			run = m.Tokens
		}
		wrong := func(format string, args ...any) error { return &ItemError{i, fmt.Sprintf(format, args...)} }
		switch {
		case o.Encoder.Rows == 0:
			return wrong("the model runs without a vision tower; send text, or allow images in multimodal.limits")
		case m.Tokens < 1 || len(m.Across) < 1 || len(m.Across) != len(m.Down) || len(m.Pixels)%len(m.Across) != 0:
			return wrong("%d tokens of %d patches, at %d rows, with %d numbers", m.Tokens, len(m.Across), len(m.Down), len(m.Pixels))
		case m.At < end:
			return wrong("it begins at token %d, before the end of the image before it at %d", m.At, end)
		case m.At > prompt-m.Tokens:
			return wrong("its %d tokens from %d on exceed the prompt of %d tokens", m.Tokens, m.At, prompt)
		case m.Columns < 0 || m.Columns > 0 && m.Tokens%m.Columns != 0:
			return wrong("%d tokens are no rows of %d", m.Tokens, m.Columns)
		case run > o.Encoder.Rows:
			return wrong("its %d tokens, with those of images directly before it, exceed the encoder cache of %d rows", run, o.Encoder.Rows)
		case o.Encoder.Whole && run > o.MaxNumBatchedTokens:
			return wrong("its %d tokens, with those of images directly before it, exceed the %d tokens of a step (maxNumBatchedTokens), which computes an image whole", run, o.MaxNumBatchedTokens)
		case o.Encoder.Whole && targets:
			return wrong("prompt logprobs are not computed for prompts with images of this model; leave out prompt_logprobs")
		}
	}
	return nil
}

// item is an Item of a sequence in the scheduler. Items that are computed together are one run.
type item struct {
	*Item
	key    [32]byte // of the run in the encoder cache
	offset int      // of the item's rows in those of its run
	rows   int      // of the run
	shift  int      // what is added to the position of a token before the item to get its text position
	row    int32    // of its first encoded row, for the step being built
}

// setItems fills q.items, and the items that its blocks depend on.
func (q *Seq) setItems(whole bool) {
	q.whole = whole
	n := len(q.spec.Items)
	if n == 0 {
		return
	}
	q.items, q.places = make([]item, n), make([]kv.Item, n)
	shift := 0
	for i := range q.items {
		m := &q.spec.Items[i]
		name := m.Name
		if name == "" {
			name = hex.EncodeToString(m.Hash[:])
		}
		q.items[i] = item{Item: m, key: m.key(), rows: m.Tokens, shift: shift}
		q.places[i] = kv.Item{Hash: q.items[i].key, Name: name, At: m.At, Tokens: m.Tokens, From: m.At, To: m.At + m.Tokens}
		shift += m.shift()
	}
	for i, end := 0, 0; whole && i < n; i = end {
		for end = i + 1; end < n && q.places[end].At == q.places[end-1].End(); end++ {
		}
		q.join(i, end)
	}
	q.shift, q.itemsEnd = shift, q.places[n-1].To
}

// Places returns the items of a prompt as the blocks of its sequence depend on them.
func (o Options) Places(items []Item) []kv.Item {
	q := &Seq{spec: Spec{Items: items}}
	q.setItems(o.Encoder.Whole)
	return q.places
}

// join makes items i to end−1 one run.
func (q *Seq) join(i, end int) {
	if end-i < 2 {
		return
	}
	from, to := q.places[i].From, q.places[end-1].To
	h := sha256.New()
	for k := i; k < end; k++ {
		h.Write(q.items[k].key[:])
	}
	key := [32]byte(h.Sum(nil))
	for k := i; k < end; k++ {
		q.places[k].From, q.places[k].To = from, to
		q.items[k].key, q.items[k].offset, q.items[k].rows = key, q.items[k].At-from, to-from
	}
}

// key returns the hash of what an item's encoded rows depend on.
func (m *Item) key() [32]byte {
	b := append(make([]byte, 0, 64), m.Hash[:]...)
	for _, n := range []int{m.Tokens, len(m.Across), m.Columns} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return sha256.Sum256(b)
}

// shift returns what an item adds to the text positions of the tokens behind it: it takes as many as
// the longer side of its grid (transformers: get_rope_index).
func (m *Item) shift() int {
	if m.Columns == 0 {
		return 0
	}
	return max(m.Columns, m.Tokens/m.Columns) - m.Tokens
}

// itemAt returns the index of the first item whose run ends behind position p.
func (q *Seq) itemAt(p int) int {
	i := 0
	for i < len(q.places) && q.places[i].To <= p {
		i++
	}
	return i
}

// runEnd returns the index behind the last item of the run of item i.
func (q *Seq) runEnd(i int) int {
	end := i + 1
	for end < len(q.places) && q.places[end].From == q.places[i].From {
		end++
	}
	return end
}

// wholeEnd returns p, or the beginning of the run that p splits.
func (q *Seq) wholeEnd(p int) int {
	if i := q.itemAt(p); i < len(q.places) && q.places[i].From < p {
		return q.places[i].From
	}
	return p
}

// Encoded fills in, for count positions from from on, the encoded row of each token, −1 without one,
// and the position behind the last token that it sees: its own, or that of its run. It is valid
// for the positions of a row of the last step.
func (q *Seq) Encoded(from, count int, rows, ends []int32) {
	for k := range count {
		rows[k], ends[k] = -1, int32(from+k+1)
	}
	for i := q.itemAt(from); i < len(q.items) && q.places[i].At < from+count; i++ {
		m := &q.places[i]
		for p := max(from, m.At); p < min(from+count, m.End()); p++ {
			rows[p-from] = q.items[i].row + int32(p-m.At)
			if q.whole {
				ends[p-from] = int32(m.To)
			}
		}
	}
}

// Positions fills in the three positions of count tokens from position from on: time, row and column.
// A token of an item has its place in the item's grid; an item takes as many text positions as the
// longer side of its grid (transformers: get_rope_index).
func (q *Seq) Positions(from, count int, at []int32) {
	i := q.itemAt(from)
	for k := range count {
		p := from + k
		for i < len(q.items) && q.places[i].End() <= p {
			i++
		}
		shift := q.shift
		if i < len(q.items) {
			shift = q.items[i].shift
		}
		t, row, column := p+shift, p+shift, p+shift
		if i < len(q.items) && q.places[i].At <= p && q.items[i].Columns > 0 {
			m := &q.items[i]
			t = m.At + shift
			row, column = t+(p-m.At)/m.Columns, t+(p-m.At)%m.Columns
		}
		at[3*k], at[3*k+1], at[3*k+2] = int32(t), int32(row), int32(column)
	}
}
