package sched

import "fmt"

// Policy is the order in which sequences run.
type Policy uint8

// The policies.
const (
	FCFS     Policy = iota // first come, first served
	Priority               // lower priority value first, then first come
)

// String is the word of the profile.
func (p Policy) String() string {
	if p == Priority {
		return "priority"
	}
	return "fcfs"
}

// ParsePolicy reads the word of the profile.
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "fcfs":
		return FCFS, nil
	case "priority":
		return Priority, nil
	}
	return 0, fmt.Errorf("scheduling policy %q: want fcfs or priority", s)
}
