package cuda

import (
	"fmt"
	"unsafe"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/nccl"
	"vapp.dev/kernels/cuda"
)

// The ops between ranks. A process has one rank, which is one GPU; NCCL connects them.

// collective is the name of a launch of NCCL among the kernels.
const collective = "nccl"

// groupOf returns the group of settings, nil for a single device. Only NCCL moves device memory.
func groupOf(s backend.Settings) (*nccl.Group, error) {
	if s.Group == nil {
		return nil, nil
	}
	g, ok := s.Group.(*nccl.Group)
	if !ok {
		return nil, backend.Unsupported(name, fmt.Sprintf("a group of type %T", s.Group), "its values are in device memory, so its ranks are connected by NCCL")
	}
	return g, nil
}

// checkGroup returns nil if a device can run the ops of p between ranks.
func (l layout) checkGroup(p *backend.Program) error {
	if l.group == nil { // not an interface of a nil pointer
		return backend.CheckGroup(name, p, nil)
	}
	return backend.CheckGroup(name, p, l.group)
}

// between appends an op between ranks.
func (c *lowering) between(op backend.Op) error {
	switch o := op.(type) {
	case backend.AllReduce:
		return c.allReduce(o)
	case backend.AllGather:
		return c.allGather(o)
	case backend.Send:
		return c.collective(nccl.Send, c.value(o.X), 0, c.info(o.X))
	case backend.Receive:
		return c.collective(nccl.Receive, 0, c.value(o.Y), c.info(o.Y))
	}
	return c.vision(op)
}

// collective appends a launch of NCCL on the numbers of a value.
func (c *lowering) collective(kind nccl.Kind, x, y cuda.Ptr, of backend.ValueInfo) error {
	a := nccl.Args{X: uint64(x), Y: uint64(y), Kind: kind}
	return add(c, collective, line(each(of.Rows, 1, 1)), 1, 0, a, bind(unsafe.Offsetof(a.Count), of.Rows, of.Cols))
}

// allReduce adds values in the order of ranks, so that a sum does not depend on its size, as that
// of NCCL's own does. Two numbers have one sum, so two ranks take NCCL's. More ranks take two
// steps: each adds its part of all ranks' numbers, then sends the sums to the others.
func (c *lowering) allReduce(o backend.AllReduce) error {
	x, of, world := c.value(o.X), c.info(o.X), c.p.Shard.World
	switch world {
	case 1:
		return nil
	case 2:
		return c.collective(nccl.AllReduce, x, x, of)
	}
	parts := c.workspace(counters)
	if err := c.collective(nccl.Exchange, x, parts, of); err != nil {
		return err
	}
	const threads = 256
	a := cuda.SumRanksArgs{X: parts, Y: x, Rank: int32(c.p.Shard.Rank), World: int32(world)}
	if err := add(c, "sum_ranks", line(each(of.Rows, of.Cols, threads*world)), threads, 0, a, bind(unsafe.Offsetof(a.N), of.Rows, of.Cols)); err != nil {
		return err
	}
	return c.collective(nccl.Spread, x, x, of)
}

// allGather gathers whole values in the workspace; a kernel puts the rows side by side. On one
// rank it is a copy.
func (c *lowering) allGather(o backend.AllGather) error {
	x, of, world := c.value(o.X), c.info(o.X), c.p.Shard.World
	if world == 1 {
		return c.concat(x, of, 0, backend.ValueInfo{}, c.value(o.Y))
	}
	all := c.workspace(counters)
	if err := c.collective(nccl.AllGather, x, all, of); err != nil {
		return err
	}
	a := cuda.JoinRanksArgs{X: all, Y: c.value(o.Y), Cols: int32(of.Cols), World: int32(world)}
	return add(c, "join_ranks", line(each(of.Rows, 1, 1)), across(of.Cols*world, 256), 0, a, bind(unsafe.Offsetof(a.Rows), of.Rows, 1))
}

// gathered returns the end of the workspace of an op between ranks, for the values that it
// gathers there: of all ranks, or of parts that are as many numbers as a value has.
func (c *lowering) gathered(op backend.Op) int64 {
	world := int64(c.p.Shard.World)
	size := func(v backend.Value) int64 { return 4 * int64(c.rows(c.info(v).Rows)) * int64(c.info(v).Cols) }
	switch o := op.(type) {
	case backend.AllReduce:
		if world > 2 {
			return counters + up(size(o.X)+4*world, align) // a part is rounded up
		}
	case backend.AllGather:
		if world > 1 {
			return counters + up(world*size(o.X), align)
		}
	}
	return counters
}
