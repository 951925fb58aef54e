package tokenizer

// Encoding encodes a text window by window, so that a long text costs the memory
// of one window and its caller can stop between two. The ids are those that
// encoding the text at once gives. Between two calls an Encoding holds nothing but
// the text. It belongs to one goroutine.
type Encoding struct {
	t      *Tokenizer
	text   string
	o      EncodeOptions
	at     progress
	window int // 0: the usual
}

// The bounds of one call of Next. A text is divided where its tokenizer's
// definition shows that the ids stay the same; KindLength is the error where there
// is no such place within Undivided bytes.
const (
	Window    = 8 << 10  // bytes of text, usually
	Undivided = 64 << 10 // bytes of text at most
)

// NewEncoding starts the encoding of a text, which must be UTF-8.
func (t *Tokenizer) NewEncoding(text string, o EncodeOptions) *Encoding {
	return &Encoding{t: t, text: text, o: o}
}

// Done reports whether the whole text is encoded.
func (e *Encoding) Done() bool { return e.at.done() }

// Next appends the ids of the next window.
func (e *Encoding) Next(ids []int32) ([]int32, error) {
	p, err := e.t.obj.hold()
	if err != nil {
		return ids, err
	}
	defer e.t.obj.release()
	return encode(p, e.text, e.o, e.window, &e.at, ids)
}
