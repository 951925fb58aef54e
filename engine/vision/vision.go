// Package vision turns the pixels of images and video frames into the input of a vision encoder, and
// computes how many tokens they take and where rope positions put them: sizes, resampling, patches
// and positions equal those of the processors in transformers.
//
// It must not decode a file, read one or use the network, and it does not know of prompts,
// templates or devices: an image is an rgb.Image, and a result is a slice of numbers. Start reading
// at Processor.
package vision

import (
	"encoding/json"
	"fmt"

	"vapp.dev/engine/vision/rgb"
)

// Processor is what a model does with images and videos before its encoder.
type Processor struct {
	Image Rule
	Video VideoRule // nil: the model's files configure none
}

// Rule is how a model's processor prepares an image. It never changes and is safe for use by
// several goroutines.
type Rule interface {
	// Size returns the grid of an image of width × height pixels. budget is the maximum number of
	// tokens, 0 that of the rule. Errors are *SizeError or *ConfigError (a budget that the model
	// does not have).
	Size(width, height, budget int) (Grid, error)
	// Patches resizes img to g, which Size returned, and sets dst to its patches, in the memory of
	// dst where that is enough. It runs on all processors. The caller has compared g.Tokens with
	// its limit: options of a request may ask for any size.
	Patches(dst *Patches, img *rgb.Image, g Grid)
	// Most returns the maximum number of tokens of an image.
	Most() int
	// Layout returns the form of a patch.
	Layout() Layout
	// With returns the rule with the options of mm_processor_kwargs. Errors are *ConfigError.
	With(kwargs map[string]json.RawMessage) (Rule, error)
}

// VideoRule is how a model's processor prepares a video: which frames, and the items that they
// form. An item is encoded alone: one frame, or Layout().Frames successive ones.
type VideoRule interface {
	// Sample returns the indices of the frames to encode, of total frames. fps is that of the
	// video; 0: unknown, which counts as 24.
	Sample(total int, fps float64) []int
	// Size returns the grid of each item of a video with n sampled frames. Its errors are
	// *SizeError.
	Size(n, width, height int) (Grid, error)
	// Patches sets dst to the patches of one item. The last frame stands for absent ones.
	Patches(dst *Patches, frames []*rgb.Image, g Grid)
	// Labels returns, for each item of the sampled frames, the text before its begin-of-image token.
	Labels(frames []int, fps float64) []string
	// Most returns the maximum number of tokens of an item.
	Most() int
	// Layout returns the form of a patch.
	Layout() Layout
	// With returns the rule with the options of mm_processor_kwargs. Errors are *ConfigError.
	With(kwargs map[string]json.RawMessage) (VideoRule, error)
}

// Grid is the size of an image after resizing.
type Grid struct {
	Width, Height int // in pixels
	Across, Down  int // in patches
	Merge         int // Merge × Merge patches are one token
}

// Tokens returns the number of encoded rows.
func (g Grid) Tokens() int { return g.Across / g.Merge * (g.Down / g.Merge) }

// Span returns the placeholder tokens of the image from token at on.
func (g Grid) Span(at int) Span {
	return Span{At: at, Across: g.Across / g.Merge, Down: g.Down / g.Merge}
}

// Patches is the input of an encoder, as op Patches of the model's program reads it.
type Patches struct {
	// Pixels are the colours of each patch: patches × Layout.Cols. Colours has what a byte stands
	// for, 0 to 1. The op's Scale and Shift make that pixel_values of transformers' processor.
	Pixels  []byte
	Colours *[256]float32
	// Across and Down are column and row of each patch in the grid.
	Across, Down []int32
}

// Layout is the form of a patch and the order of patches, in the terms of op Patches.
type Layout struct {
	Patch  int // pixels per side
	Frames int // of a patch, ordered by channel, frame, row, column; 0: one, ordered by row, column, channel
	Square int // patches are ordered by squares of Square × Square; 0: row by row
}

// Cols returns the numbers of a patch.
func (l Layout) Cols() int { return 3 * max(l.Frames, 1) * l.Patch * l.Patch }

// SizeError reports an image or a video that a processor cannot resize.
type SizeError struct {
	Width, Height int
	Reason        string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("an image of %d × %d pixels: %s", e.Width, e.Height, e.Reason)
}

// SpanError reports spans that Positions cannot place.
type SpanError struct {
	Span   int // its index
	Reason string
}

func (e *SpanError) Error() string { return fmt.Sprintf("encoded span %d: %s", e.Span, e.Reason) }
