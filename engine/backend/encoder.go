package backend

import "fmt"

// An encoder program turns one item (an image, or frames of a video) into rows that Merge puts in
// place of embeddings. It ends with EncoderOutput. The host fills the Item arena, Encode runs the
// program, and the rows stay in the Encoded arena, whose rows the host hands out.

// EncoderShape sizes the encoder's input and cache. Zero: no encoder.
type EncoderShape struct {
	Patches int // of the largest item
	Cols    int // numbers of a patch
	Rows    int // encoded rows of the cache: the Encoded arena has Rows × Width F32
	Width   int // of an encoded row: the text model's hidden size
}

// Shades is the number of values of a byte of ItemInput.Pixels. Colours of so many F32 are directly
// before Pixels in memory.
const Shades = 256

// ItemInput is the input of an encoder: memory that the host can access, at fixed addresses.
type ItemInput struct {
	Colours      []float32 // [Shades] the colour from 0 to 1 that a byte of Pixels stands for
	Pixels       []byte    // [Patches·Cols] in the order that op Patches says
	Across, Down []int32   // [Patches] column and row of each patch in the grid of the item
	// The device fills the rest: the rows of the one sequence of an encoder's attention.
	First     []int32 // [2]
	Positions []int32 // [Patches]
	At        []int32 // [1] EncodeBinding.At
}

// Encoder is a Device that runs encoder programs. The goroutine that calls Launch calls its methods.
type Encoder interface {
	// Item returns the input buffers; nil without an encoder. They may be filled before the first
	// Encode and after WaitItem.
	Item() *ItemInput
	// Encode starts e on the first b.Patches patches of Item and returns at once. It runs in order
	// with launches. The result goes to rows [b.At, b.At+b.Rows) of the Encoded arena. The error is a
	// *StepError for a binding or positions that e cannot run.
	Encode(e Executable, b EncodeBinding) error
	// WaitItem blocks until the last Encode has finished and returns its error.
	WaitItem() error
}

// EncodeBinding is the size of one item, and where its encoded rows go.
type EncodeBinding struct {
	Patches, Rows int
	At            int32
}

// Most returns the patches of the largest item that fits; 0 for nil.
func (in *ItemInput) Most() int {
	if in == nil {
		return 0
	}
	return len(in.Across)
}

// ItemBytes returns the size of the Item arena.
func (e EncoderShape) ItemBytes() int64 {
	once := 4*Shades + 2*align64(8)
	return align64(int64(e.Patches)*int64(e.Cols)) + 3*align64(4*int64(e.Patches)) + once*int64(min(e.Patches, 1))
}

// EncodedBytes returns the size of the Encoded arena.
func (e EncoderShape) EncodedBytes() int64 { return 4 * int64(e.Rows) * int64(e.Width) }

// Carve returns the buffers of an item as slices of mem, which has ItemBytes bytes and 64-byte
// alignment; nil for the zero shape.
func (e EncoderShape) Carve(mem []byte) *ItemInput {
	if e.Patches == 0 {
		return nil
	}
	var off int64
	in := &ItemInput{Colours: carve[float32](mem, &off, Shades), Pixels: carve[byte](mem, &off, e.Patches*e.Cols)}
	in.Across, in.Down = carve[int32](mem, &off, e.Patches), carve[int32](mem, &off, e.Patches)
	in.First, in.Positions = carve[int32](mem, &off, 2), carve[int32](mem, &off, e.Patches)
	in.At = carve[int32](mem, &off, 1)
	for t := range in.Positions {
		in.Positions[t] = int32(t)
	}
	return in
}

// AddEncoder sizes r's Item and Encoded arenas for an encoder on layout l. The encoder's program is
// one of r's programs.
func (r *Reservation) AddEncoder(l Layout, e EncoderShape) {
	r.Encoder = e
	r.Arenas[Item], r.Arenas[Encoded] = l.Round(e.ItemBytes()), l.Round(e.EncodedBytes())
}

// ShapeOf returns the shape for encoder program p and a cache of that many rows.
func ShapeOf(p *Program, rows int) EncoderShape {
	e := EncoderShape{Patches: p.Bucket.Tokens, Rows: rows}
	for _, op := range p.Ops {
		switch o := op.(type) {
		case Patches:
			e.Cols = p.Values[o.Pixels].Cols
		case EncoderOutput:
			e.Width = p.Values[o.X].Cols
		}
	}
	return e
}

// Encodes reports whether p is an encoder program, which Encode runs instead of Launch.
func (p *Program) Encodes() bool {
	for _, op := range p.Ops {
		if _, ok := op.(EncoderOutput); ok {
			return true
		}
	}
	return false
}

// TakesItems reports whether p has ops that read Step.Encoded or Step.ItemEnd: StepShape.Items.
func (p *Program) TakesItems() bool {
	for _, op := range p.Ops {
		switch o := op.(type) {
		case Merge:
			return true
		case Attention:
			if o.Items {
				return true
			}
		}
	}
	return false
}

// FitsEncoder returns a *ProgramError unless an encoder of this shape has room for the items and
// the rows of p.
func (p *Program) FitsEncoder(e EncoderShape) error {
	for i, op := range p.Ops {
		why := ""
		switch o := op.(type) {
		case Patches:
			if n := p.Values[o.Pixels].Cols; n != e.Cols || p.Bucket.Tokens > e.Patches {
				why = fmt.Sprintf("it reads %d patches of %d, the item has %d of %d", p.Bucket.Tokens, n, e.Patches, e.Cols)
			}
		case EncoderOutput:
			if n := p.Values[o.X].Cols; n != e.Width || p.Bucket.Samples > e.Rows {
				why = fmt.Sprintf("it writes %d rows of %d, the cache has %d of %d", p.Bucket.Samples, n, e.Rows, e.Width)
			}
		case Tokens, StoreTokens, StoreKV, Gather, GatherLast, Sample, OutputRows, Merge, Adapt:
			why = "it is an op of steps; an encoder has no tokens"
		case Attention:
			if !o.Bidirectional {
				why = "it reads pages; an encoder has none"
			}
		case Angles:
			if !o.Grid {
				why = "it reads positions of tokens; an encoder has columns and rows"
			}
		}
		if why != "" {
			return &ProgramError{p.Name, i, OpName(op), why}
		}
	}
	return nil
}

// CheckItems returns a *StepError unless the items of a launch with binding b are whole tokens of its
// sequences, and their rows are in a cache of that shape. A Device calls it after Check.
func (s *Step) CheckItems(b Binding, e EncoderShape) error {
	if s.Encoded == nil {
		return nil
	}
	for seq := range b.Seqs {
		before := int32(0)
		for t := s.First[seq]; t < s.First[seq+1]; t++ {
			last := s.Positions[s.First[seq+1]-1]
			if row := s.Encoded[t]; row < -1 || int(row) >= e.Rows {
				return &StepError{"Encoded", fmt.Sprintf("row %d is encoded row %d of %d", t, row, e.Rows)}
			}
			if s.EncodedNext != nil && (s.EncodedNext[t] < -1 || int(s.EncodedNext[t]) >= e.Rows) {
				return &StepError{"EncodedNext", fmt.Sprintf("the token after row %d is encoded row %d of %d", t, s.EncodedNext[t], e.Rows)}
			}
			if end := s.ItemEnd[t]; end <= s.Positions[t] || end > last+1 {
				return &StepError{"ItemEnd", fmt.Sprintf("row %d at %d: its item ends at %d, its sequence at %d", t, s.Positions[t], end, last+1)}
			} else if end < before {
				return &StepError{"ItemEnd", fmt.Sprintf("row %d: its item ends at %d, that of the row before at %d", t, end, before)}
			} else {
				before = end
			}
		}
	}
	return nil
}

// Check returns a *StepError unless Encode can run p on the item with binding b: its size is within
// the program and the cache, and its patches fill a grid that p's squares divide.
func (in *ItemInput) Check(p *Program, e EncoderShape, b EncodeBinding) error {
	switch {
	case in == nil || !p.Encodes():
		return &StepError{"Encode", fmt.Sprintf("program %s is no encoder's", p.Name)}
	case b.Patches < 1 || b.Patches > min(p.Bucket.Tokens, e.Patches):
		return &StepError{"EncodeBinding.Patches", fmt.Sprintf("%d, at most %d", b.Patches, min(p.Bucket.Tokens, e.Patches))}
	case b.Rows < 1 || b.Rows > p.Bucket.Samples:
		return &StepError{"EncodeBinding.Rows", fmt.Sprintf("%d, at most %d", b.Rows, p.Bucket.Samples)}
	case b.At < 0 || int(b.At)+b.Rows > e.Rows:
		return &StepError{"EncodeBinding.At", fmt.Sprintf("rows %d to %d of a cache of %d", b.At, int(b.At)+b.Rows, e.Rows)}
	}
	wide, high := int32(0), int32(0)
	for i := range b.Patches {
		if in.Across[i] < 0 || in.Down[i] < 0 || int(in.Across[i]) >= b.Patches || int(in.Down[i]) >= b.Patches {
			return &StepError{"Item", fmt.Sprintf("patch %d of %d is in column %d, row %d", i, b.Patches, in.Across[i], in.Down[i])}
		}
		wide, high = max(wide, in.Across[i]+1), max(high, in.Down[i]+1)
	}
	if int64(wide)*int64(high) != int64(b.Patches) {
		return &StepError{"Item", fmt.Sprintf("%d patches do not fill a grid of %d × %d", b.Patches, wide, high)}
	}
	return in.checkOps(p, b, int(wide), int(high))
}

// checkOps checks what single ops want of an item's grid.
func (in *ItemInput) checkOps(p *Program, b EncodeBinding, wide, high int) error {
	for _, op := range p.Ops {
		size, rows := 1, b.Rows
		switch o := op.(type) {
		case Patches:
			if o.Square > 1 {
				size = o.Square
			}
			if err := in.checkOrder(o.Square, wide, b.Patches); err != nil {
				return err
			}
		case AvgPool:
			size, rows = o.Size, b.Patches/(o.Size*o.Size)
		case Join:
			n := p.Values[o.Y].Cols / p.Values[o.X].Cols
			rows = b.Patches / n
			if b.Patches%n != 0 {
				return &StepError{"EncodeBinding.Patches", fmt.Sprintf("%d, not whole rows of %d", b.Patches, n)}
			}
		}
		if wide%size != 0 || high%size != 0 {
			return &StepError{"Item", fmt.Sprintf("a grid of %d × %d is not whole squares of %d × %d", wide, high, size, size)}
		}
		if rows != b.Rows {
			return &StepError{"EncodeBinding.Rows", fmt.Sprintf("%d, %d patches give %d", b.Rows, b.Patches, rows)}
		}
	}
	return nil
}

// checkOrder returns a *StepError unless patches are in the order of Patches.Square.
func (in *ItemInput) checkOrder(square, wide, patches int) error {
	for t := range patches {
		across, down := t%wide, t/wide
		if square > 1 && wide%square == 0 {
			n, i, squares := t/(square*square), t%(square*square), wide/square
			across, down = n%squares*square+i%square, n/squares*square+i/square
		}
		if int(in.Across[t]) != across || int(in.Down[t]) != down {
			return &StepError{"Item", fmt.Sprintf("patch %d is in column %d, row %d; in a grid %d wide it is in %d, %d", t, in.Across[t], in.Down[t], wide, across, down)}
		}
	}
	return nil
}
