package cuda

import (
	"fmt"
	"strings"

	"vapp.dev/engine/backend/cuda/driver"
)

// DriverLine returns one line of text: the devices of this machine and the driver's CUDA
// version, or why there is none.
func (Opener) DriverLine() string {
	all, err := driver.Devices()
	if err != nil {
		return "cuda: " + err.Error()
	}
	var names []string
	for _, d := range all {
		names = append(names, d.String())
	}
	return fmt.Sprintf("cuda: %s; driver for CUDA %s", strings.Join(names, ", "), all[0].CUDA())
}
