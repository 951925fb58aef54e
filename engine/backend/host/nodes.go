package host

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
)

// nodesDir has a folder for each NUMA node, node0 for example.
const nodesDir = "sys/devices/system/node"

// nodes returns the NUMA nodes that have CPUs and memory which this process may use, ascending;
// nil if there are fewer than two, so that there is nothing to place. CPUs of a node without such
// memory are counted to the nearest node that has both.
func nodes(root fs.FS) []backend.Node {
	status := text(root, "proc/self/status")
	cpus, mems := list(field(status, "Cpus_allowed_list")), list(field(status, "Mems_allowed_list"))
	var out []backend.Node
	far := map[int][]int{} // CPUs of nodes without memory
	ids := nodeIDs(root)
	for _, id := range ids {
		at := nodesDir + "/node" + strconv.Itoa(id) + "/"
		n := backend.Node{ID: id, CPUs: both(list(text(root, at+"cpulist")), cpus), Bytes: nodeMemory(text(root, at+"meminfo"))}
		switch {
		case len(n.CPUs) > 0 && n.Bytes > 0 && slices.Contains(mems, id):
			out = append(out, n)
		case len(n.CPUs) > 0:
			far[id] = n.CPUs
		}
	}
	if len(out) < 2 {
		return nil
	}
	for _, id := range ids {
		if cpus := far[id]; cpus != nil {
			n := &out[nearest(root, id, ids, out)]
			n.CPUs = append(n.CPUs, cpus...)
			slices.Sort(n.CPUs)
		}
	}
	return out
}

// nearest returns the index of the node with the smallest distance from node id, the first of
// equals. Its distance file has a number for each of ids.
func nearest(root fs.FS, id int, ids []int, nodes []backend.Node) int {
	distances := strings.Fields(text(root, nodesDir+"/node"+strconv.Itoa(id)+"/distance"))
	best, at := int64(unlimited), 0
	for k, n := range nodes {
		if i := slices.Index(ids, n.ID); i < len(distances) {
			if d := number(distances[i]); d < best {
				best, at = d, k
			}
		}
	}
	return at
}

// nodeIDs returns the numbers of the system's NUMA nodes, ascending.
func nodeIDs(root fs.FS) []int {
	entries, _ := fs.ReadDir(root, nodesDir)
	var ids []int
	for _, e := range entries {
		if s, ok := strings.CutPrefix(e.Name(), "node"); ok {
			if id, err := strconv.Atoi(s); err == nil && id >= 0 {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// nodeMemory returns the MemTotal of a node's meminfo, whose lines begin with "Node 0".
func nodeMemory(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if _, rest, ok := strings.Cut(line, "MemTotal:"); ok {
			if w := strings.Fields(rest); len(w) > 0 {
				return min(number(w[0]), unlimited>>10) << 10
			}
		}
	}
	return 0
}

// field returns the text behind "name:" in lines of /proc/self/status.
func field(status, name string) string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// maxList bounds the numbers of a list: more than Linux has CPUs.
const maxList = 1 << 16

// list reads the system's form of a set of numbers, "0-3,8,10-11", ascending; nil if it has
// another form.
func list(s string) []int {
	if s == "" {
		return nil
	}
	var out []int
	for r := range strings.SplitSeq(s, ",") {
		low, high, ok := strings.Cut(r, "-")
		if !ok {
			high = low
		}
		a, err := strconv.ParseUint(low, 10, 32)
		b, err2 := strconv.ParseUint(high, 10, 32)
		if err != nil || err2 != nil || a > b || b >= maxList {
			return nil
		}
		for ; a <= b; a++ {
			out = append(out, int(a))
		}
		if len(out) > maxList {
			return nil
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// both returns the numbers that are in a and in b; a is ascending.
func both(a, b []int) []int {
	var out []int
	for _, n := range a {
		if _, ok := slices.BinarySearch(b, n); ok {
			out = append(out, n)
		}
	}
	return out
}
