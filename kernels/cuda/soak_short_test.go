//go:build !soak

package cuda_test

// longSoak is off: a few formats have rows of real lengths.
const longSoak = false
