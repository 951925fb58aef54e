//go:build soak

package appliance

// The size of TestSwapStorm.
const stormChanges, stormClients = 100, 64
