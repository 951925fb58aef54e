//go:build soak

package cuda_test

// longSoak is on: every format has rows of real lengths.
const longSoak = true
