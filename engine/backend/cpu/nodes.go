package cpu

import (
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	kcpu "vapp.dev/kernels/cpu"
)

// maxNodes is the most NUMA nodes that the pool and mbind's mask of one word have.
const maxNodes = 64

// node is a NUMA node and the pool's threads on it.
type node struct {
	backend.Node
	threads int
}

// spreadThreads distributes threads over nodes in proportion to their CPUs; what is left over
// goes to the nodes with the largest remainders. Nodes without a thread are left out. It returns
// nil if fewer than two nodes have threads.
func spreadThreads(nodes []backend.Node, threads int) []node {
	cpus, left := 0, threads
	for _, n := range nodes {
		cpus += len(n.CPUs)
	}
	var out []node
	for _, n := range nodes {
		share := threads * len(n.CPUs) / cpus
		out, left = append(out, node{n, share}), left-share
	}
	byRest := make([]int, len(out))
	for i := range byRest {
		byRest[i] = i
	}
	rest := func(i int) int { return threads * len(out[i].CPUs) % cpus }
	slices.SortStableFunc(byRest, func(a, b int) int { return rest(b) - rest(a) })
	for _, i := range byRest[:left] {
		out[i].threads++
	}
	out = slices.DeleteFunc(out, func(n node) bool { return n.threads == 0 })
	if len(out) < 2 {
		return nil
	}
	return out
}

// spread sets the nodes that threads and memory are placed on, and describes the choice.
func (l *layout) spread(f backend.Facts, off bool) {
	if len(f.Nodes) < 2 {
		return
	}
	l.numa = backend.Choice{Name: "numa", Value: "off", Why: "as set: the system places threads and memory"}
	switch {
	case off:
		return
	case f.Nodes[len(f.Nodes)-1].ID >= maxNodes:
		l.numa.Why = fmt.Sprintf("the machine has node %d; threads and memory are placed on nodes below %d", f.Nodes[len(f.Nodes)-1].ID, maxNodes)
		return
	}
	l.nodes = spreadThreads(f.Nodes, l.threads)
	if l.nodes == nil {
		l.numa.Why = fmt.Sprintf("the threads, %d, run on one node", l.threads)
		return
	}
	var on []string
	for _, n := range l.nodes {
		on = append(on, fmt.Sprintf("%d on node %d", n.threads, n.ID))
	}
	l.numa.Value = fmt.Sprintf("%d nodes", len(l.nodes))
	l.numa.Why = "threads: " + strings.Join(on, ", ") + "; each node's memory has its threads' share of every weight; KV and activations alternate"
}

// firstPanel returns the first of n panels in the memory of a node; n for the node behind the
// last. It is vapp_node_panel of kernels/cpu/native/shared/linear.h.
func (l layout) firstPanel(n int64, node int) int64 {
	before := 0
	for _, d := range l.nodes[:node] {
		before += d.threads
	}
	return n * int64(before) / int64(l.threads)
}

// region is a part of an arena and the index of the node in whose memory it is; everywhere: its
// pages alternate between the nodes.
type region struct {
	at, bytes int64
	node      int
}

const everywhere = -1

// wholeUnits is from how many huge pages for each node on a matrix is cut between huge pages.
// The cut is at most half a huge page off, so at most a sixteenth of a node's panels are on
// another node. Smaller matrices are cut between pages, and what is around the cut is in small
// pages.
const wholeUnits = 8

// regions returns where the memory of the weights is, with nothing between two regions. Each
// node has the panels that its threads take first. Tables of which steps read single rows, and
// stacks of small experts, alternate between nodes: each region is a mapping of its own, of which
// Linux has 65,530 for a process, and its ends are in small pages. Vectors are where the weight
// before them ends.
func (l layout) regions(specs []backend.WeightSpec, weights []weight, bytes int64) []region {
	var out []region
	from := func(at int64, node int, grain int64) {
		at = (at + grain/2) / grain * grain
		if len(out) == 0 {
			at = 0
		} else if last := &out[len(out)-1]; at <= last.at {
			at, out = last.at, out[:len(out)-1]
		}
		if n := len(out); n == 0 || out[n-1].node != node {
			out = append(out, region{at: at, node: node})
		}
	}
	for i, spec := range specs {
		at := weights[i].off
		switch {
		case spec.Use&backend.Vector != 0:
		case spec.Use&backend.Multiply == 0:
			from(at, everywhere, l.page)
		default:
			for _, m := range l.matrices(spec, weights[i].Packed) {
				grain := l.page
				if m.bytes/int64(len(l.nodes)) >= wholeUnits*l.unit {
					grain = l.unit
				} else if spec.Experts > 0 {
					from(at, everywhere, l.page)
					break
				}
				for k := range l.nodes {
					from(at+m.bytes/m.panels*l.firstPanel(m.panels, k), k, grain)
				}
				at += m.bytes
			}
		}
	}
	for i := range out {
		end := bytes
		if i+1 < len(out) {
			end = out[i+1].at
		}
		out[i].bytes = end - out[i].at
	}
	return out
}

// packedMatrix is a matrix as it is packed: bytes in a number of panels.
type packedMatrix struct{ bytes, panels int64 }

// matrices returns the matrices of a weight in the order of memory: those of its segments, and
// those of its experts.
func (l layout) matrices(spec backend.WeightSpec, p backend.Packed) []packedMatrix {
	var out []packedMatrix
	list := spec.Segments()
	if list == nil {
		list = []backend.WeightSpec{spec}
	}
	for _, s := range list {
		if len(list) > 1 {
			p, _ = l.Weight(s) // it was packed before, so it is supported
		}
		n := int64(max(1, s.Experts))
		for range n {
			out = append(out, packedMatrix{p.Bytes / n, (int64(s.Rows) + kcpu.PanelRows - 1) / kcpu.PanelRows})
		}
	}
	return out
}
