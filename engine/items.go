package engine

import (
	"fmt"
	"math"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
)

// Item is an image of a prompt, or a frame of a video: its patches, and the tokens whose embeddings the
// rows replace that the vision tower encodes from them.
type Item struct {
	// Hash identifies what is encoded. Items of equal hashes are encoded once while the encoder
	// cache keeps them, and prompts share KV pages only if the hashes of their items are equal.
	Hash [32]byte
	// Name is the item's key in the hashes of KV blocks that Hooks.Blocks reports: vLLM's mm_hash,
	// or the client's uuid. "": the hexadecimal Hash.
	Name string
	// At is the first of the item's Tokens consecutive tokens in Request.Prompt. What ids these
	// have does not matter to the encoder.
	At, Tokens int
	// Pixels [patches, numbers of a patch], Colours, Across and Down [patches] are as
	// backend.ItemInput has them. They must not change until the request has ended; the engine keeps them until then,
	// since a preempted prompt may be encoded again.
	Pixels       []byte
	Colours      *[256]float32
	Across, Down []int32
}

// ItemError refuses an item of a request.
type ItemError = sched.ItemError

// ImagesError refuses a model with its vision tower, or the options for it.
type ImagesError struct{ Why string }

func (e *ImagesError) Error() string { return "images: " + e.Why }

// ItemOptions sizes what the items of requests need. It applies to models that are built with their
// vision tower (models.Build.Vision).
type ItemOptions struct {
	Patches int // of the largest item; 0: the model's own maximum
	// Rows is how many encoded rows the encoder cache holds; 0: those of the largest item, and at
	// least MaxNumBatchedTokens (vLLM's rule).
	Rows int
	// Budget is how many patches a step encodes, but at least one item; 0: Patches.
	Budget int
}

// withDefaults returns the options for a tower whose largest item has that many patches, in a build
// of which the encoder program takes rows encoded rows.
func (o ItemOptions) withDefaults(p *backend.Program, batched int) ItemOptions {
	o.Patches = p.Bucket.Tokens
	if o.Rows == 0 {
		o.Rows = max(p.Bucket.Samples, batched)
	}
	if o.Budget == 0 {
		o.Budget = o.Patches
	}
	return o
}

// encoder returns the vision tower's program, nil if the account has none.
func (a *Account) encoder() *backend.Program {
	for _, p := range a.Reservation.Programs[1:] {
		if p.Encodes() {
			return p
		}
	}
	return nil
}

// addEncoder reserves what the vision tower needs, and refuses what it cannot run with. The error is an
// *ImagesError.
func (a *Account) addEncoder(o Options, m *Model) error {
	p := a.encoder()
	if p == nil {
		return nil
	}
	tokens, batched := p.Bucket.Samples, o.MaxNumBatchedTokens
	a.Items = o.Items.withDefaults(p, batched)
	switch {
	case a.Items.Rows < tokens:
		return &ImagesError{fmt.Sprintf("the largest image has %d tokens and the encoder cache %d rows; raise the rows, or lower multimodal.image.tokens", tokens, a.Items.Rows)}
	case a.Items.Budget < 1:
		return &ImagesError{fmt.Sprintf("a step encodes %d patches; want at least 1", a.Items.Budget)}
	case a.wholeItems && tokens > batched:
		return &ImagesError{fmt.Sprintf("the largest image has %d tokens, which this model computes in one step, and a step has %d; raise scheduler.maxNumBatchedTokens to at least %d, or lower multimodal.image.tokens", tokens, batched, tokens)}
	}
	a.Reservation.AddEncoder(a.Layout, backend.ShapeOf(p, a.Items.Rows))
	return nil
}

// seesItems reports whether p has attention in which the tokens of an item see later ones.
func seesItems(p *backend.Program) bool {
	for _, op := range p.Ops {
		if o, ok := op.(backend.Attention); ok && o.Items {
			return true
		}
	}
	return false
}

// schedItems returns the items of a request as the scheduler has them. The error is an *ItemError.
func (e *Engine) schedItems(r *Request) ([]sched.Item, error) {
	if len(r.Items) == 0 {
		return nil, nil
	}
	out := make([]sched.Item, len(r.Items))
	for i := range r.Items {
		m := &r.Items[i]
		out[i] = sched.Item{Hash: m.Hash, Name: m.Name, At: m.At, Tokens: m.Tokens, Pixels: m.Pixels, Colours: m.Colours, Across: m.Across, Down: m.Down}
		if e.tower == nil {
			continue
		}
		if n, most := len(m.Across), e.encoder.Patches; n > most || len(m.Down) != n || len(m.Pixels) != n*e.encoder.Cols {
			return nil, &ItemError{Item: i, Why: fmt.Sprintf("%d patches with %d numbers and %d places: an image has at most %d, with %d numbers each", n, len(m.Pixels), len(m.Down), most, e.encoder.Cols)}
		}
		if m.Colours == nil {
			return nil, &ItemError{Item: i, Why: "its bytes have no colours; set Item.Colours"}
		}
		in := backend.ItemInput{Pixels: m.Pixels, Across: m.Across, Down: m.Down}
		if err := in.Check(e.tower, e.encoder, backend.EncodeBinding{Patches: len(m.Across), Rows: m.Tokens}); err != nil {
			return nil, &ItemError{Item: i, Why: err.Error()}
		}
		if e.axes > 0 {
			out[i].Columns = columns(m)
		}
	}
	targets := r.Params.PromptLogprobs >= 0
	if r.Pooling != NoPooling {
		if targets = r.Pooling != PoolingLast; targets && e.schedule.Encoder.Whole {
			return nil, &ItemError{Why: "this model's outputs of all tokens are not computed for prompts with images; ask for an embedding of the last token (pooling.type LAST), or send text"}
		}
	}
	return out, e.schedule.CheckItems(len(r.Prompt), out, targets)
}

// columns returns how many encoded rows of an item stand beside each other: a row has as many patches
// across as down.
func columns(m *Item) int {
	side := int(math.Sqrt(float64(len(m.Across) / m.Tokens)))
	last := int32(0)
	for _, x := range m.Across {
		last = max(last, x)
	}
	return int(last+1) / max(1, side)
}
