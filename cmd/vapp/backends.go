package main

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/ref"
)

// machines are the backends of this binary, the preferred first. Those that
// were built without their native half plan, and refuse to open.
func machines() []backend.Opener {
	return []backend.Opener{cpu.Opener{}, ref.Opener{}, cuda.Opener{}}
}
