package main

import (
	"os"

	"vapp.dev/appliance"
	"vapp.dev/appliance/hub"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/ref"
)

// localMachine describes this host and its model cache.
func localMachine() appliance.Machine {
	return appliance.Machine{Backends: backends(), Hub: hub.FromEnv(os.Getenv), Rates: measuredRates}
}

// driverLine returns a line about the devices of this host that need a driver.
func driverLine() string { return cuda.Opener{}.DriverLine() }

// backends returns the backends of this binary, in the order in which backend auto tries them. A
// backend built without its native code can plan but not open a device.
func backends() []backend.Opener {
	return []backend.Opener{cuda.Opener{}, cpu.Opener{}, ref.Opener{}}
}
