package ref

import "vapp.dev/engine/backend"

// The ops between ranks are one unit: a worker makes the group's call.

// allReduce on one rank does nothing.
type allReduce struct{ backend.AllReduce }

func (allReduce) units(*launch) int { return 1 }
func (o allReduce) run(l *launch, _, _ int) error {
	if l.e.p.Shard.World == 1 {
		return nil
	}
	return l.d.layout.group.AllReduce(l.floats(o.X))
}

// allGather on one rank is a copy.
type allGather struct{ backend.AllGather }

func (allGather) units(*launch) int { return 1 }
func (o allGather) run(l *launch, _, _ int) error {
	if l.e.p.Shard.World == 1 {
		copy(l.bytes(o.Y), l.bytes(o.X))
		return nil
	}
	return l.d.layout.group.AllGather(l.floats(o.X), l.floats(o.Y), l.cols(o.X))
}

type send struct{ backend.Send }

func (send) units(*launch) int               { return 1 }
func (o send) run(l *launch, _, _ int) error { return l.d.layout.group.Send(l.floats(o.X)) }

type receive struct{ backend.Receive }

func (receive) units(*launch) int               { return 1 }
func (o receive) run(l *launch, _, _ int) error { return l.d.layout.group.Receive(l.floats(o.Y)) }
