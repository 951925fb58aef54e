// Package host is the facts of this machine that every CPU backend needs:
// memory and its limits, cores, pages and caches, read without cgo.
package host

import "vapp.dev/engine/backend"

// The words of Facts.MemoryLimit.
const (
	LimitCgroup  = "cgroup"  // a control group allows less than the machine has
	LimitSystem  = "system"  // the machine's memory
	LimitUnknown = "unknown" // neither could be read: TotalBytes is 0
)

// UnknownDevice is Facts.Device where the processor's name cannot be read.
const UnknownDevice = "unknown processor"

// Probe returns the facts of this machine with Backend set to name: all but
// Variants, which the backend finds out. It allocates no memory that lasts. A
// fact that cannot be read is 0; without memory MemoryLimit is LimitUnknown.
//
// TotalBytes is the lowest of the memory and the limits of the control groups
// of this process; FreeBytes is the lowest of what the system has available and
// what those groups have left, caches counted as free. Cores is the CPUs that
// the scheduler may put this process on, or fewer where a group's CPU quota is
// below them (rounded up).
func Probe(name string) (backend.Facts, error) {
	f, err := probe()
	f.Backend = name
	f.Measured = true
	if f.Device == "" {
		f.Device = UnknownDevice
	}
	if f.TotalBytes == 0 {
		f.MemoryLimit = LimitUnknown
	}
	return f, err
}
