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

// here is this machine, with the models that were fetched to it.
func localMachine() appliance.Machine {
	return appliance.Machine{Backends: backends(), Hub: hub.FromEnv(os.Getenv)}
}

// found is a line about the devices of this machine that need a driver.
func driverLine() string { return cuda.Opener{}.Found() }

// machines are the backends of this binary, in the order in which auto asks
// whether they serve. Those that were built without their native half plan, and refuse to open.
func backends() []backend.Opener {
	return []backend.Opener{cuda.Opener{}, cpu.Opener{}, ref.Opener{}}
}
