//go:build !soak

package engine_test

// longSoak is off: requests enough to have each way of ending on each family.
const longSoak = false
