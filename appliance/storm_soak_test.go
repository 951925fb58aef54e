//go:build soak

package appliance

// The size of TestSwapStorm.
const stormChanges, stormClients = 100, 64

// The ways of TestMediaSwap, and its clients.
var mediaWays = []string{"rebuild without a gap", "rebuild", "beside", "drain"}

const mediaClients = 8
