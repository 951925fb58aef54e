package backend

import (
	"fmt"
	"slices"
)

// Group connects the ranks of one model: the device of each rank runs the ops AllReduce, AllGather, Send and
// Receive by it. Tensor parallel ranks make the same calls in the same order, with values of the same size.
// A call returns when its result is there. After an error every call of every rank fails.
type Group interface {
	// Tensor returns this rank among those that share each matrix, Pipe its stage.
	Tensor() Shard
	Pipe() Shard
	// AllReduce replaces x by the sum over the tensor parallel ranks, added in the order of ranks.
	AllReduce(x []float32) error
	// AllGather writes to each row of y [rows,cols·World] the rows of all tensor parallel ranks' x [rows,cols],
	// one behind the other.
	AllGather(x, y []float32, cols int) error
	// Send sends x to the rank of the next stage that has the same place among the tensor parallel ranks.
	// Receive fills x with what the previous stage sent.
	Send(x []float32) error
	Receive(x []float32) error
	// Abort makes all calls of all ranks fail with err, those that wait too. The first error stays.
	Abort(err error)
}

// Interrupter is a Device in a Group that can end a launch early.
type Interrupter interface {
	// Interrupt makes the running launches and all later ones fail with err, within a part of a
	// step. Any goroutine may call it; the first error stays.
	Interrupt(err error)
}

// replicated reports whether p is an encoder that each rank runs whole, without the others.
func (p *Program) replicated() bool {
	exchanges := slices.ContainsFunc(p.Ops, func(op Op) bool {
		switch op.(type) {
		case AllReduce, AllGather:
			return true
		}
		return false
	})
	return p.Encodes() && p.Shard.World == 1 && !exchanges
}

// CheckGroup returns nil if a device with the group, nil for a single device, can run the ops of p between ranks.
// Otherwise it returns ErrUnsupported with the name of the backend.
func CheckGroup(backend string, p *Program, g Group) error {
	staged := slices.ContainsFunc(p.Ops, func(op Op) bool {
		switch op.(type) {
		case Send, Receive:
			return true
		}
		return false
	})
	switch {
	case g != nil && g.Tensor() != p.Shard && !p.replicated():
		return Unsupported(backend, fmt.Sprintf("rank %d of %d", p.Shard.Rank, p.Shard.World), fmt.Sprintf("the group has made this rank %d of %d", g.Tensor().Rank, g.Tensor().World))
	case g == nil && p.Shard.World > 1:
		return Unsupported(backend, fmt.Sprintf("%d ranks", p.Shard.World), "it is a single device")
	case staged && (g == nil || g.Pipe().World == 1):
		return Unsupported(backend, "pipeline stages", "it is a single device")
	}
	return nil
}
