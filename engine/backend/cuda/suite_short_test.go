//go:build linux && cgo && cuda && !soak

package cuda

// allShapes is off: TestShapes multiplies the shapes of one model.
const allShapes = false
