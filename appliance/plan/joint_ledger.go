package plan

import (
	"fmt"
	"slices"

	"vapp.dev/schema"
)

// hostPlace is the name of the machine's own memory.
const hostPlace = "this machine's memory"

// split divides the ledgers of the members into places, and each into what the process has once and
// what each member has.
func (j *Joint) split() {
	host := place{name: hostPlace}
	device := place{}
	var largest int64
	for i := range j.Members {
		m := &j.Members[i]
		f := m.Plan.Facts
		if m.w.onGPU() {
			device.name, device.total = f.Device, f.TotalBytes
		} else {
			host.name, host.total = f.Device, f.TotalBytes
		}
		m.takes = make([]takes, 2)
		for _, it := range m.Plan.Ledger {
			m.add(it, &host, &device)
		}
		m.takes[0].unloaded = Ledger{m.unloaded()}
		largest = max(largest, int64(m.profile.Serve.Limits.MaxBodyBytes))
	}
	host.shared = append(host.shared, Item{Name: "listener", Bytes: frontBytes(largest), Basis: Bound,
		Rule: fmt.Sprintf("bodies whose model is looked for: the largest, %v, + %v", schema.Bytes(largest), schema.Bytes(4<<20))})
	j.places = []place{host, device}
}

// add adds a line of the member's own ledger to what it takes, or to what the process has once.
func (m *Member) add(it Item, host, device *place) {
	onHost := !m.w.onGPU()
	switch it.Basis {
	case Apart:
		return
	case Host:
		onHost, it.Basis = true, Bound
	}
	at := 0
	if !onHost {
		at = 1
	}
	switch it.Name {
	case childItem:
		host.once(it)
	case reserveItem:
		if onHost {
			host.once(it)
		} else {
			device.once(it)
		}
	case "context": // of the driver: engines share the device's primary context
		device.once(it)
	case runtimeItem:
		shared, own := m.processOnce(it)
		host.once(shared)
		m.takes[0].loaded = append(m.takes[0].loaded, own)
	default:
		m.takes[at].loaded = append(m.takes[at].loaded, it)
	}
}

// processOnce divides the line of the process into what every process has and what the model adds.
func (m *Member) processOnce(it Item) (shared, own Item) {
	once := int64(heapBase + binaryPages)
	rule := fmt.Sprintf("heap %v + binary %v", schema.Bytes(heapBase), schema.Bytes(binaryPages))
	if m.w.onGPU() { // its threads are those of the process
		once += perThread * hostThreads
		rule += fmt.Sprintf(" + %v × %d threads", schema.Bytes(perThread), hostThreads)
	}
	shared, own = it, it
	shared.Bytes, shared.Rule, shared.Parts = once, rule, nil
	own.Bytes, own.Rule, own.Parts = it.Bytes-once, "Go heap and threads that the model adds to the process", nil
	return shared, own
}

// unloaded returns the line of a member whose model is not in memory.
func (m *Member) unloaded() Item {
	return Item{Name: "unloaded", Bytes: m.Plan.UnloadedHeap() - heapBase, Basis: Bound,
		Rule: fmt.Sprintf("%v + %v × %s ids: its server while the model is not loaded", schema.Bytes(unloadedHeap), schema.Bytes(heapPerWord), Group(int64(m.Plan.Model.Vocab)))}
}

// once adds a line that the process has once: the largest of the members' lines.
func (p *place) once(it Item) {
	at := slices.IndexFunc(p.shared, func(o Item) bool { return o.Name == it.Name })
	if at < 0 {
		p.shared = append(p.shared, it)
	} else if it.Bytes > p.shared[at].Bytes {
		p.shared[at] = it
	}
}
