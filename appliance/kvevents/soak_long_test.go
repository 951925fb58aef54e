//go:build soak

package kvevents

// twinRequests is how many requests TestTwin makes.
const twinRequests = 10000
