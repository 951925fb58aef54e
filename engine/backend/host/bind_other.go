//go:build !linux

package host

import (
	"errors"
	"fmt"
)

// Bind is for Linux.
func Bind(cpus []int) error {
	return fmt.Errorf("bind to CPUs %v: %w", cpus, errors.ErrUnsupported)
}
