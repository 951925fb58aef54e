package enginetest

// GoldenItem is an image in the prompt of a golden file.
type GoldenItem struct {
	At, Tokens   int       // position of its first placeholder token, and their number
	Across, Down int       // patches in a row of its grid, and rows
	Seed         int       // of Pixels
	Columns      []int32   // [Across·Down] column of each patch, in the order in which the tower reads patches
	Rows         []int32   // [Across·Down] its row
	Encoded      []float32 // [Tokens, H] output of the tower, at the text model's width
}

// Patches returns the number of patches.
func (i GoldenItem) Patches() int { return i.Across * i.Down }

// End returns the position behind the item's last token.
func (i GoldenItem) End() int { return i.At + i.Tokens }

// Colours returns what the bytes of Pixels stand for: steps of 1/256.
func (i GoldenItem) Colours() *[256]float32 {
	var out [256]float32
	for b := range out {
		out[b] = float32(b) / 256
	}
	return &out
}

// Pixels returns the item's patches, [Patches, cols]: the formula of pixels in
// engine/models/testdata/tiny_media.py.
func (i GoldenItem) Pixels(cols int) []byte {
	out := make([]byte, i.Patches()*cols)
	for k := range out {
		h := uint32(k)*0x9E3779B9 + uint32(i.Seed)
		h = (h ^ h>>16) * 0x85EBCA6B
		h = (h ^ h>>13) * 0xC2B2AE35
		h ^= h >> 16
		out[k] = byte(h >> 24)
	}
	return out
}

// ItemAt returns the item that the token at a position belongs to, and which of its tokens that is.
func (g *Golden) ItemAt(position int) (item *GoldenItem, token int) {
	for i := range g.Items {
		if at := &g.Items[i]; position >= at.At && position < at.End() {
			return at, position - at.At
		}
	}
	return nil, 0
}

// items reads the images of a prompt and the positions of its tokens, if the file has them.
func (f *goldenFile) items(g *Golden) {
	if _, ok := f.tensors["items"]; !ok || f.err != nil {
		return
	}
	const fields = 5
	facts := f.ints("items", -1, fields)
	tokens, patches := 0, 0
	for i := 0; i < len(facts); i += fields {
		x := GoldenItem{At: int(facts[i]), Tokens: int(facts[i+1]), Across: int(facts[i+2]), Down: int(facts[i+3]), Seed: int(facts[i+4])}
		const most = 1 << 12
		if x.Across < 1 || x.Down < 1 || x.Across > most || x.Down > most || x.Tokens < 1 || x.At < 0 || x.End() > len(g.InputIDs) || x.Seed < 0 ||
			len(g.Items) > 0 && x.At < g.Items[len(g.Items)-1].End() {
			f.fail("items", "has %v at %d, in a prompt of %d", facts[i:i+fields], i/fields, len(g.InputIDs))
			return
		}
		tokens, patches = tokens+x.Tokens, patches+x.Patches()
		g.Items = append(g.Items, x)
	}
	encoded, places := f.floats("encoded", tokens, len(g.LastHidden)), f.ints("places", patches, 2)
	if _, ok := f.tensors["positions"]; ok {
		g.Positions = f.ints("positions", 3, len(g.InputIDs)+len(g.DecodeIDs))
	}
	if f.err != nil {
		return
	}
	for i := range g.Items {
		x := &g.Items[i]
		n := x.Tokens * len(g.LastHidden)
		x.Encoded, encoded = encoded[:n:n], encoded[n:]
		for range x.Patches() {
			x.Columns, x.Rows, places = append(x.Columns, places[0]), append(x.Rows, places[1]), places[2:]
		}
	}
}
