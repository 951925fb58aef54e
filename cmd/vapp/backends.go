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
func here() appliance.Machine {
	return appliance.Machine{Backends: machines(), Hub: hub.FromEnv(os.Getenv)}
}

// found is a line about the devices of this machine that need a driver.
func found() string { return cuda.Opener{}.DriverLine() }

// machines are the backends of this binary, in the order in which auto asks
// whether they serve. Those that were built without their native half plan, and refuse to open.
func machines() []backend.Opener {
	return []backend.Opener{cuda.Opener{}, cpu.Opener{}, ref.Opener{}}
}
