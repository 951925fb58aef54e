//go:build soak

package engine_test

// longSoak has each family serve 2,000 requests, of up to 8,192 tokens on cpu.
const longSoak = true
