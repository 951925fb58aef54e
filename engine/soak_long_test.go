//go:build soak

package engine_test

// soakRequests are those of the long soak, on each family.
const soakRequests = 2000
