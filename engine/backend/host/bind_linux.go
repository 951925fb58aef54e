package host

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Bind lets the threads of this process, and those that they start, run on these CPUs only. Memory that they touch first is then
// of the CPUs' NUMA node.
func Bind(cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	// A thread may start another while the threads are listed; a second pass finds it.
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("bind to CPUs %v: %w", cpus, err)
		}
		for _, t := range tasks {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
				return fmt.Errorf("bind to CPUs %v: %w; allow sched_setaffinity in the container's seccomp profile, or set cpu.numa to \"off\"", cpus, err)
			}
		}
	}
	return nil
}
