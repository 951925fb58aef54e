//go:build !soak

package appliance

// The size of TestSwapStorm; with the tag soak it is that of a long run.
const stormChanges, stormClients = 16, 8

// The ways of TestMediaSwap, and its clients.
var mediaWays = []string{"rebuild without a gap", "drain"}

const mediaClients = 1
