//go:build !soak

package engine_test

// soakRequests are enough to have each way of ending on each family.
const soakRequests = 60
