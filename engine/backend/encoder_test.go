package backend

import (
	"strings"
	"testing"
	"unsafe"

	"vapp.dev/kernels"
)

// towerProgram is an encoder program: patches in squares of 2 × 2, of which each becomes one row.
func towerProgram(op Op) *Program {
	p := &Program{Name: "tower", Bucket: Bucket{Tokens: 16, Seqs: 1, Samples: 4}}
	r := Record(p)
	px := r.New("pixels", kernels.F32, PerToken, 12)
	across, down := r.New("across", kernels.I32, PerToken, 1), r.New("down", kernels.I32, PerToken, 1)
	r.Do(Patches{Pixels: px, Across: across, Down: down, Scale: 2, Shift: -1})
	y := r.New("pooled", kernels.F32, PerSample, 12)
	r.Do(AvgPool{X: px, Across: across, Down: down, Y: y, Size: 2, Scale: 1})
	if op != nil {
		r.Do(op)
	}
	r.Do(EncoderOutput{X: y})
	return p
}

// TestEncoderShape: the arenas of an encoder hold its buffers, and a program that is no encoder's, or
// too large, does not fit.
func TestEncoderShape(t *testing.T) {
	p := towerProgram(nil)
	e := ShapeOf(p, 9)
	if e != (EncoderShape{Patches: 16, Cols: 12, Rows: 9, Width: 12}) || !p.Encodes() || p.TakesItems() {
		t.Errorf("%+v", e)
	}
	if e.ItemBytes() != 4*256+16*12+5*64 || e.EncodedBytes() != 9*12*4 || (EncoderShape{}).ItemBytes() != 0 {
		t.Errorf("%d, %d bytes", e.ItemBytes(), e.EncodedBytes())
	}
	mem := make([]byte, e.ItemBytes()+64)
	mem = mem[-uintptr(unsafe.Pointer(&mem[0]))&63:][:e.ItemBytes()]
	if in := e.Carve(mem); len(in.Pixels) != 16*12 || len(in.Colours) != 256 || unsafe.Pointer(&in.Pixels[0]) != unsafe.Add(unsafe.Pointer(&in.Colours[0]), 4*256) || len(in.Across) != 16 || len(in.Down) != 16 || len(in.First) != 2 || len(in.At) != 1 || in.Positions[15] != 15 {
		t.Errorf("%d pixels, %d and %d places", len(in.Pixels), len(in.Across), len(in.Down))
	}
	if (EncoderShape{}).Carve(nil) != nil {
		t.Error("there is an item without an encoder")
	}
	for want, c := range map[string]struct {
		p *Program
		e EncoderShape
	}{
		"":                                     {p, e},
		"reads 16 patches of 12, the item has": {p, EncoderShape{Patches: 15, Cols: 12, Rows: 9, Width: 12}},
		"writes 4 rows of 12, the cache has 3": {p, EncoderShape{Patches: 16, Cols: 12, Rows: 3, Width: 12}},
		"it is an op of steps":                 {towerProgram(Merge{}), e},
		"it reads pages":                       {towerProgram(Attention{}), e},
		"it reads positions of tokens":         {towerProgram(Angles{}), e},
	} {
		if err := c.p.FitsEncoder(c.e); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestItemCheck: an item whose size, rows or places do not match the program is refused.
func TestItemCheck(t *testing.T) {
	p := towerProgram(nil)
	e := ShapeOf(p, 9)
	item := func(wide, high int) *ItemInput {
		in := &ItemInput{Pixels: make([]byte, 16*12), Across: make([]int32, 16), Down: make([]int32, 16)}
		for i := range wide * high {
			in.Across[i], in.Down[i] = int32(i%wide), int32(i/wide)
		}
		return in
	}
	with := func(in *ItemInput, across, down int32) *ItemInput {
		in.Across[1], in.Down[1] = across, down
		return in
	}
	for _, c := range []struct {
		in   *ItemInput
		b    EncodeBinding
		want string
	}{
		{item(4, 2), EncodeBinding{Patches: 8, Rows: 2, At: 7}, ""},
		{item(4, 4), EncodeBinding{Patches: 16, Rows: 4}, ""},
		{nil, EncodeBinding{Patches: 8, Rows: 2}, "no encoder's"},
		{item(4, 4), EncodeBinding{Patches: 17, Rows: 4}, "17, at most 16"},
		{item(4, 4), EncodeBinding{Rows: 4}, "0, at most 16"},
		{item(4, 4), EncodeBinding{Patches: 16, Rows: 5}, "5, at most 4"},
		{item(4, 4), EncodeBinding{Patches: 16, Rows: 3}, "16 patches give 4"},
		{item(4, 4), EncodeBinding{Patches: 16, Rows: 4, At: 6}, "rows 6 to 10 of a cache of 9"},
		{item(4, 4), EncodeBinding{Patches: 16, Rows: 4, At: -1}, "a cache of 9"},
		{item(3, 2), EncodeBinding{Patches: 6, Rows: 1}, "not whole squares"},
		{with(item(4, 2), 3, -1), EncodeBinding{Patches: 8, Rows: 2}, "column 3, row -1"},
		{with(item(4, 2), 4, 0), EncodeBinding{Patches: 8, Rows: 2}, "do not fill a grid of 5 × 2"},
		{with(item(4, 2), 2, 0), EncodeBinding{Patches: 8, Rows: 2}, "in a grid 4 wide it is in 1, 0"},
	} {
		if err := c.in.Check(p, e, c.b); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.b, err, c.want)
		}
	}
}

// TestCheckItems: encoded rows are in the cache, and items end within their sequence's part of the step.
func TestCheckItems(t *testing.T) {
	shape := StepShape{Tokens: 6, Seqs: 2, Samples: 1, Vocab: 8, Items: true}
	mem := make([]byte, shape.SetBytes())
	for want, set := range map[string]func(*Step){
		"":                            func(s *Step) { s.Encoded[1], s.Encoded[2], s.ItemEnd[1], s.ItemEnd[2] = 3, 0, 3, 3 },
		"encoded row 4 of 4":          func(s *Step) { s.Encoded[1] = 4 },
		"encoded row -2 of 4":         func(s *Step) { s.Encoded[1] = -2 },
		"its item ends at 1":          func(s *Step) { s.ItemEnd[1] = 1 },
		"that of the row before at 3": func(s *Step) { s.ItemEnd[0] = 3 },
		"its item ends at 4, its":     func(s *Step) { s.ItemEnd[1] = 4 },
	} {
		s := shape.Carve(mem)
		copy(s.First, []int32{0, 3, 5})
		copy(s.Positions, []int32{0, 1, 2, 7, 8})
		for t := range 5 {
			s.Encoded[t], s.ItemEnd[t] = -1, s.Positions[t]+1
		}
		set(s)
		if err := s.CheckItems(Binding{Tokens: 5, Seqs: 2}, EncoderShape{Rows: 4}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
