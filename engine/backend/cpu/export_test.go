//go:build cgo && linux

package cpu

import (
	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// SoftTiles is the backend with emulated tiles for the attention of amx.
type SoftTiles struct{ Opener }

// Open opens a device like Opener.
func (SoftTiles) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := newLayout(f, s)
	if err != nil {
		return nil, err
	}
	l.attention = kcpu.SoftAMX
	return l.open(s, r)
}

// OnNodes is the backend on nodes of its own choice instead of the machine's: Threads[i] threads
// on the CPUs of CPUs[i], in memory of node i. With Refused the system refuses to place memory.
type OnNodes struct {
	Opener
	Threads []int
	CPUs    [][]int
	Refused error
}

func (o OnNodes) layout(f backend.Facts, s backend.Settings) (layout, error) {
	l, err := newLayout(f, s)
	l.nodes, l.threads = nil, 0
	for i, n := range o.Threads {
		l.nodes = append(l.nodes, node{backend.Node{ID: i, CPUs: o.CPUs[i]}, n})
		l.threads += n
	}
	return l, err
}

// Layout returns the layout of the device that Open opens.
func (o OnNodes) Layout(f backend.Facts, s backend.Settings) (backend.Layout, error) {
	return o.layout(f, s)
}

// Open opens a device like Opener.
func (o OnNodes) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	l, err := o.layout(f, s)
	if err != nil {
		return nil, err
	}
	if o.Refused != nil {
		system := mbind
		mbind = func([]byte, int, uint64) error { return o.Refused }
		defer func() { mbind = system }()
	}
	return l.open(s, r)
}

// PoolCounts returns the counts of a device's pool.
func PoolCounts(d backend.Device) (phases, woken, spinning int64) { return d.(*device).counts() }

// Region is a part of the Weights arena and the node that it is for.
type Region struct {
	Memory []byte
	Node   int // -1: all in turn
}

// Regions returns where the weights of a device are placed, and the size of its huge pages.
func Regions(d backend.Device) (list []Region, unit int64) {
	dev := d.(*device)
	m := dev.arenas[backend.Weights]
	for _, r := range dev.layout.regions(dev.r.Weights, dev.weights, m.bytes) {
		id := -1
		if r.node != everywhere {
			id = dev.layout.nodes[r.node].ID
		}
		list = append(list, Region{m.slice(r.at, r.bytes), id})
	}
	return list, dev.layout.unit
}

// RestFor is the pool's rule for how long a thread sleeps.
var RestFor = restFor
