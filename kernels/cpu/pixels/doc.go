// Package pixels resamples one axis of an image: the integer passes of Pillow's and torchvision's
// resizing, in C for AVX2, AVX-512 and NEON. All give the same bytes. Elsewhere Best finds none, and
// engine/vision has the same passes in Go.
//
// It must not choose sizes or weights, decode images or start goroutines: engine/vision does.
// Start reading at Mix and Rows, then body.h.
package pixels

// Together is the number of rows that Rows resamples.
const Together = 16

// Lines are lines of bytes, Stride bytes apart: line i is at i mod Ring.
type Lines struct {
	Pix          []byte
	Stride, Ring int
}

// Line returns the first n bytes of line i.
func (l Lines) Line(i, n int) []byte {
	at := i % l.Ring * l.Stride
	return l.Pix[at : at+n : at+n]
}

// Weights are those of one axis. Line i of the result is the sum of the lines from First[i] on times
// W[End[i-1]:End[i]], whole numbers of 1/2^Bits, rounded.
type Weights struct {
	First, End []int32
	W          []int32
	Bits       uint
}

// Of returns the weights of line i of the result.
func (w *Weights) Of(i int) []int32 {
	if i == 0 {
		return w.W[:w.End[0]]
	}
	return w.W[w.End[i-1]:w.End[i]]
}
