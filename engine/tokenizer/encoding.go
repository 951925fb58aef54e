package tokenizer

// Encoding encodes a text window by window, so that a long text needs the memory of one window and
// its caller can stop between two. The ids equal those of encoding the whole text at once. Between
// two calls an Encoding keeps only the text and a position. Only one goroutine may use it.
type Encoding struct {
	t      *Tokenizer
	text   string
	o      EncodeOptions
	at     progress
	window int // 0: the default
}

// Limits of one call of Next. A text is divided only where the tokenizer's definition guarantees
// unchanged ids. The error is KindLength if there is no such position within Undivided bytes.
const (
	Window    = 8 << 10  // bytes of text, by default
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
