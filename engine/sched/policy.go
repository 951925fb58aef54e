package sched

import (
	"fmt"
	"slices"
)

// Policy is the order in which sequences run.
type Policy uint8

// The policies.
const (
	FCFS     Policy = iota // first come, first served
	Priority               // lower priority value first, then first come
)

// String returns the policy's name in a profile.
func (p Policy) String() string {
	if p == Priority {
		return "priority"
	}
	return "fcfs"
}

// ParsePolicy parses the policy's name in a profile.
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "fcfs":
		return FCFS, nil
	case "priority":
		return Priority, nil
	}
	return 0, fmt.Errorf("scheduling policy %q: want fcfs or priority", s)
}

// compare orders sequences: the first in order runs first and is preempted last.
func (p Policy) compare(a, b *Seq) int {
	if p == Priority && a.spec.Priority != b.spec.Priority {
		if a.spec.Priority < b.spec.Priority {
			return -1
		}
		return 1
	}
	switch {
	case a.arrival < b.arrival:
		return -1
	case a.arrival > b.arrival:
		return 1
	}
	return 0
}

// insert inserts q into a list in the policy's order.
func (p Policy) insert(list []*Seq, q *Seq) []*Seq {
	i, _ := slices.BinarySearchFunc(list, q, p.compare)
	return slices.Insert(list, i, q)
}

// remove removes q from a list in the policy's order.
func (p Policy) remove(list []*Seq, q *Seq) []*Seq {
	i, ok := slices.BinarySearchFunc(list, q, p.compare)
	if !ok {
		return list
	}
	return slices.Delete(list, i, i+1)
}
