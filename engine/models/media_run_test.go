package models_test

import (
	"testing"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
)

// goldenTower encodes the images of a golden file's prompt.
type goldenTower struct {
	p    *backend.Program
	exe  backend.Executable
	out  backend.Value // of the encoded rows
	cols int           // numbers of a patch
	rows int           // rows of the cache: those of all images, and one that none has
	at   []int32       // first row of each image in the cache
}

// recordTower records the tower for the largest image of g. The images' rows are in the cache from
// the last image to the first, behind a row of no image.
func recordTower(t testing.TB, m models.Model, g *enginetest.Golden) *goldenTower {
	t.Helper()
	o, patches := &goldenTower{rows: 1, at: make([]int32, len(g.Items))}, 0
	for i := len(g.Items) - 1; i >= 0; i-- {
		o.at[i] = int32(o.rows)
		o.rows += g.Items[i].Tokens
		patches = max(patches, g.Items[i].Patches())
	}
	p, err := m.(models.Encoder).RecordEncoder(&backend.Program{Name: "encoder", Bucket: backend.Bucket{Tokens: patches, Seqs: 1}})
	must(t, err)
	o.p = p
	for _, op := range p.Ops {
		switch op := op.(type) {
		case backend.Patches:
			o.cols = p.Values[op.Pixels].Cols
		case backend.EncoderOutput:
			o.out = op.X
		}
	}
	return o
}

// largestItem returns the tokens of the largest image, at least 1.
func largestItem(g *enginetest.Golden) int {
	n := 1
	for _, x := range g.Items {
		n = max(n, x.Tokens)
	}
	return n
}

// wholeItems returns how many tokens a chunk of n tokens has at a position so that it splits no
// image: the chunk ends where an image begins that it cannot hold, unless it begins there too.
func wholeItems(g *enginetest.Golden, at, n int) int {
	switch x, token := g.ItemAt(at + n); {
	case x == nil || token == 0:
		return n
	case x.At > at:
		return x.At - at
	default:
		return x.End() - at
	}
}

// placeItems encodes the images of a step's n tokens and fills what the step says of them. Later
// steps have no images, but three positions.
func (m *goldenModel) placeItems(t testing.TB, s *backend.Step, at, n int) {
	t.Helper()
	if m.tower == nil {
		return
	}
	for i, x := range m.g.Items {
		if x.At >= at && x.At < at+n {
			m.encode(t, i, x)
		}
	}
	for i := range n {
		s.Encoded[i], s.ItemEnd[i] = -1, int32(at+i+1)
		for k := range m.g.Items {
			if x := &m.g.Items[k]; at+i >= x.At && at+i < x.End() {
				s.Encoded[i], s.ItemEnd[i] = m.tower.at[k]+int32(at+i-x.At), int32(x.End())
			}
		}
		for axis := 0; m.g.Positions != nil && axis < 3; axis++ {
			s.MRopePositions[3*i+axis] = m.g.Positions[axis*m.g.Rows()+at+i]
		}
	}
}

// encode runs the tower on an image.
func (m *goldenModel) encode(t testing.TB, i int, x enginetest.GoldenItem) {
	t.Helper()
	e := m.dev.(backend.Encoder)
	in := e.Item()
	copy(in.Colours, x.Colours()[:])
	copy(in.Pixels, x.Pixels(m.tower.cols))
	copy(in.Across, x.Columns)
	copy(in.Down, x.Rows)
	must(t, e.Encode(m.tower.exe, backend.EncodeBinding{Patches: x.Patches(), Rows: x.Tokens, At: m.tower.at[i]}))
	must(t, e.WaitItem())
	if m.encoded != nil {
		raw := m.dev.(backend.Inspector).Scratch(m.tower.out, m.tower.p)
		m.encoded(i, unsafe.Slice((*float32)(unsafe.Pointer(&raw[0])), len(x.Encoded)))
	}
}
