//go:build cgo && linux

package cpu

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// executable is a program compiled to two lists of phases, one for each set of step buffers,
// with every address resolved.
type executable struct {
	d     *device
	p     *backend.Program
	lists []list
	// bare are lists without the adapters, for steps in which no token has one.
	bare []list
	// exchanges are the ops between ranks, in order. exchange i comes before phase cuts[i] of a list.
	exchanges []backend.Op
	exchanged [][]*clocks // of exchanges, by set, if ops are measured
}

// Program returns the program that was compiled.
func (e *executable) Program() *backend.Program { return e.p }

// phase is vapp_phase of pool.h.
type phase struct {
	fn, args             uintptr
	symbol, units, grain int32
	least                int32
	time                 uintptr // of a phaseTime, or 0
}

// list is n phases at a pinned address. cuts are the phases before which the ranks exchange values.
type list struct {
	at   uintptr
	n    int
	cuts []int
}

// part returns phases from to to−1.
func (l list) part(from, to int) list {
	return list{at: l.at + uintptr(from)*unsafe.Sizeof(phase{}), n: to - from}
}

// Compile checks every shape once, so that no op can access memory outside its operands in a
// step. The lists are on Go's heap, pinned until the executable is collected.
func (d *device) Compile(p *backend.Program) (backend.Executable, error) {
	if d.pool == nil {
		return nil, errClosed
	}
	if err := errors.Join(backend.CheckGroup(name, p, d.layout.group), d.r.Takes(name, d.layout, p)); err != nil {
		return nil, err
	}
	sets := len(d.steps)
	e := &executable{d: d, p: p, lists: make([]list, sets), bare: make([]list, sets), exchanged: make([][]*clocks, sets)}
	mem := &pinned{}
	for set := range e.lists {
		c := compiler{d: d, p: p, set: set, s: d.stepOf(p, set), o: d.steps[d.r.Step.Before(set)], mem: mem}
		for i, op := range p.Ops {
			c.name = backend.OpName(op)
			if err := c.op(op); err != nil {
				mem.pins.Unpin()
				return nil, fmt.Errorf("program %s: op %d: %w", p.Name, i, err)
			}
		}
		e.lists[set], e.exchanges, e.exchanged[set] = c.list(), c.exchanges, c.exchanged
		d.times = append(d.times, c.times...)
		if e.bare[set] = e.lists[set]; p.AdapterSlots > 0 {
			e.bare[set] = c.without(c.adapters)
		}
	}
	runtime.AddCleanup(e, func(m *pinned) { m.pins.Unpin() }, mem)
	return e, nil
}

// stepOf returns the step buffers that p reads in a set; those of an item for an encoder program.
func (d *device) stepOf(p *backend.Program, set int) *backend.Step {
	if p.Encodes() {
		return &d.encoder.step
	}
	return d.steps[set]
}

// pinned is memory that C reads while a program runs: it holds no Go pointers
// and does not move.
type pinned struct {
	pins runtime.Pinner
	free []uint64
}

// put copies v to pinned memory and returns its address.
func put[T any](m *pinned, v T) uintptr {
	const chunk = 8192
	words := (int(unsafe.Sizeof(v)) + 63) / 64 * 8
	if words > len(m.free) {
		m.free = make([]uint64, max(chunk, words))
		m.pins.Pin(&m.free[0])
	}
	at := unsafe.Pointer(&m.free[0])
	*(*T)(at) = v
	m.free = m.free[words:]
	return uintptr(at)
}

// compiler appends the phases for one set of step buffers.
type compiler struct {
	d      *device
	p      *backend.Program
	set    int
	s, o   *backend.Step // of this set and of the one before
	mem    *pinned
	phases []phase
	name   string // of the current op
	times  []phaseTime
	// adapters are the indices of the phases of adapters.
	adapters []int
	// exchanges are the ops between ranks, cuts the phases that they precede.
	exchanges []backend.Op
	cuts      []int
	exchanged []*clocks // of exchanges, if ops are measured
}

// worth is the smallest number of moved elements that justifies another thread.
const worth = 8192

// add appends an op of kernels/cpu with its operands. units and grain determine how many
// threads it uses: see vapp_phase in pool.h.
func add[T any](c *compiler, op kcpu.Op, args T, symbol backend.Rows, units, grain int) error {
	fn, ok := kcpu.Kernel(op, c.d.layout.kernels(op))
	if !ok {
		return backend.Unsupported(name, fmt.Sprintf("%T", args), "this binary has no "+c.d.layout.variant+" kernel of it")
	}
	c.phases = append(c.phases, phase{fn: fn, args: put(c.mem, args), symbol: int32(symbol), units: int32(units), grain: int32(grain), time: c.clock()})
	return nil
}

// last returns the phase that was appended last.
func (c *compiler) last() *phase { return &c.phases[len(c.phases)-1] }

// rows returns the grain of an op on rows of n elements.
func rows(n int) int { return max(1, worth/max(1, n)) }

// list pins the phases.
func (c *compiler) list() list {
	c.mem.pins.Pin(&c.phases[0])
	return list{uintptr(unsafe.Pointer(&c.phases[0])), len(c.phases), slices.Clone(c.cuts)}
}

// without pins the phases but those at the indices, which are in order.
func (c *compiler) without(skipped []int) list {
	for i, at := range c.cuts {
		before, _ := slices.BinarySearch(skipped, at)
		c.cuts[i] -= before
	}
	var rest []phase
	for i, f := range c.phases {
		if len(skipped) > 0 && skipped[0] == i {
			skipped = skipped[1:]
			continue
		}
		rest = append(rest, f)
	}
	c.phases = rest
	return c.list()
}

// address returns the address of a slice of step buffers.
func address[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }

// value returns the address of a value; 0 for NoValue.
func (c *compiler) value(v backend.Value) uintptr {
	if v == backend.NoValue {
		return 0
	}
	return c.d.arenas[backend.Scratch].address(c.p.Values[v].Offset)
}

// weight returns the address of a weight; 0 for NoWeight.
func (c *compiler) weight(w backend.WeightID) uintptr {
	if w == backend.NoWeight {
		return 0
	}
	return c.d.arenas[backend.Weights].address(c.d.weights[w].off)
}

func (c *compiler) info(v backend.Value) backend.ValueInfo { return c.p.Values[v] }

// pages returns the kernel arguments for a layer of a class.
func (c *compiler) pages(class, layer int) kcpu.Pages {
	k := c.p.Classes[class]
	return kcpu.Pages{
		Arena: c.d.arenas[backend.KV].address(0), Table: address(c.s.Pages[class]),
		PageBytes: k.PageBytes(), SlabBytes: k.SlabBytes, K: k.KOffset(layer), V: k.VOffset(layer),
		PerSlab: int32(k.PagesPerSlab), Width: int32(k.MaxPages), Block: int32(k.BlockSize), Format: int32(k.Format),
		KVHeads: int32(k.KVHeads), HeadDim: int32(k.HeadDim), KeyDim: int32(cmp.Or(k.KeyDim, k.HeadDim)), Window: int32(k.Window), Chunked: flag(k.Chunked),
	}
}

// plane returns the kernel arguments for a class's token plane.
func (c *compiler) plane(class int) kcpu.Pages {
	p := c.pages(class, 0)
	p.K = c.p.Classes[class].TokenOffset()
	return p
}
