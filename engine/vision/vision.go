// Package vision turns the pixels of images and video frames into the input of a vision encoder, and
// computes how many tokens they take and where rope positions put them: sizes, resampling, patches
// and positions equal those of the processors in transformers.
//
// It must not decode a file, read one or use the network, and it does not know of prompts,
// templates or devices: an image is an rgb.Image, and a result is a slice of numbers. Start reading
// at Positions.
package vision

import "fmt"

// SpanError reports spans that Positions cannot place.
type SpanError struct {
	Span   int // its index
	Reason string
}

func (e *SpanError) Error() string { return fmt.Sprintf("encoded span %d: %s", e.Span, e.Reason) }
