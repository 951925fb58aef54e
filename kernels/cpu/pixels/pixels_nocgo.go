//go:build !cgo

package pixels

// Kernel is the passes for an instruction set, of which this build has none.
type Kernel struct{}

const none = "pixels: a build without cgo has no kernels"

// Best returns false: this build has no kernels.
func Best([]string) (Kernel, bool) { return Kernel{}, false }

// TileBytes returns 0.
func TileBytes(int) int { return 0 }

// Mix panics.
func (Kernel) Mix([]byte, int, *Weights, Lines) { panic(none) }

// Rows panics.
func (Kernel) Rows(Lines, int, Lines, int, int, int, *Weights, []byte) { panic(none) }
