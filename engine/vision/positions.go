package vision

import "fmt"

// Span is the placeholder tokens of one grid of encoded rows in a prompt: an image, or one temporal
// patch of a video. It has Across × Down tokens, row after row, from the token with index At.
type Span struct {
	At           int
	Across, Down int // of the encoded grid, after patches were merged
}

// Tokens returns the number of placeholder tokens of s.
func (s Span) Tokens() int { return s.Across * s.Down }

// Positions returns the positions of multimodal rope (time, row, column) of the tokens of a prompt,
// as get_rope_index of Qwen3-VL and Qwen3.5 in transformers does: tokens of text have the next
// position on each axis; the tokens of a span have that position plus 0, their row and their
// column, and the text behind it continues at that position plus the larger side of the span.
// spans are in the order of the prompt. A token with an index i behind the prompt has position
// i + delta on each axis; delta is 0 or less.
//
// The error is a *SpanError.
func Positions(tokens int, spans []Span) (at [][3]int32, delta int, err error) {
	if err := checkSpans(tokens, spans); err != nil {
		return nil, 0, err
	}
	at = make([][3]int32, tokens)
	i, next := 0, 0 // the next token and its position
	text := func(end int) {
		for ; i < end; i, next = i+1, next+1 {
			p := int32(next)
			at[i] = [3]int32{p, p, p}
		}
	}
	for _, s := range spans {
		text(s.At)
		for row := range s.Down {
			for col := range s.Across {
				at[i] = [3]int32{int32(next), int32(next + row), int32(next + col)}
				i++
			}
		}
		next += max(s.Across, s.Down)
	}
	text(tokens)
	return at, next - tokens, nil
}

// checkSpans returns a *SpanError unless spans are in order, apart, and within a prompt of tokens.
func checkSpans(tokens int, spans []Span) error {
	end := 0
	for n, s := range spans {
		switch {
		case s.Across < 1 || s.Down < 1:
			return &SpanError{n, fmt.Sprintf("a grid of %d × %d tokens is empty", s.Across, s.Down)}
		case s.At < end:
			return &SpanError{n, fmt.Sprintf("it begins at token %d, where an earlier span ends at %d", s.At, end)}
		case s.At > tokens || s.Across > tokens || s.Down > (tokens-s.At)/s.Across:
			return &SpanError{n, fmt.Sprintf("%d × %d tokens from token %d on, in a prompt of %d", s.Across, s.Down, s.At, tokens)}
		}
		end = s.At + s.Tokens()
	}
	return nil
}
