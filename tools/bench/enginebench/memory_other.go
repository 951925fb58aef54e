//go:build !linux

package enginebench

import "errors"

// peak is measured on Linux only.
type peak struct{}

func beginPeak() peak { return peak{} }

func (peak) bytes() (int64, error) { return 0, errors.New("measured on Linux only") }
