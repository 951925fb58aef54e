package cuda

import (
	"fmt"
	"strings"

	"vapp.dev/engine/backend/cuda/driver"
)

// Found is one line: the devices of this machine, or why there is none.
func (Opener) Found() string {
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
