// Package host reads the facts of this machine that every CPU backend needs: memory and its
// limits, cores, pages and caches.
//
// It must not know kernels or instruction sets, and it must not use cgo. Start reading at
// Probe.
package host

import "vapp.dev/engine/backend"

// The values of Facts.MemoryLimit.
const (
	LimitCgroup  = "cgroup"  // a control group allows less than the machine has
	LimitSystem  = "system"  // the machine's memory
	LimitUnknown = "unknown" // neither could be read: TotalBytes is 0
)

// UnknownDevice is Facts.Device if the processor's name cannot be read.
const UnknownDevice = "unknown processor"

// Probe returns the facts of this machine with Backend set to name. It sets everything except
// Variants, which the backend adds. It keeps no memory allocated. A fact that cannot be read
// is 0; without a memory size MemoryLimit is LimitUnknown.
//
// TotalBytes is the lowest of the memory and the limits of this process's control groups.
// FreeBytes is the lowest of the system's available memory and those groups' unused memory,
// where caches count as free. Cores is the number of CPUs that the scheduler may use for this
// process, or a lower CPU quota of a group (rounded up).
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
