package host

import (
	"reflect"
	"slices"
	"testing"
	"testing/fstest"

	"vapp.dev/engine/backend"
)

// twoNodes is a machine with two nodes of four CPUs, where a process may use all.
func twoNodes() fstest.MapFS {
	const at = nodesDir + "/"
	return fstest.MapFS{
		"proc/self/status":    file("Name:\tvapp\nCpus_allowed_list:\t0-7\nMems_allowed:\t3\nMems_allowed_list:\t0-1\n"),
		at + "online":         file("0-1\n"),
		at + "node0/cpulist":  file("0-1,4-5\n"),
		at + "node0/meminfo":  file("Node 0 MemTotal:       1048576 kB\nNode 0 MemFree:        524288 kB\n"),
		at + "node1/cpulist":  file("2-3,6-7\n"),
		at + "node1/meminfo":  file("Node 1 MemTotal:       2097152 kB\n"),
		at + "power/control":  file("auto\n"),
		at + "nodes/cpulist":  file("0-7\n"),
		at + "node1x/cpulist": file("0-7\n"),
	}
}

// TestNodes reads the nodes of several machines: a node without CPUs or without memory for this
// process is not used, and a single node is none.
func TestNodes(t *testing.T) {
	const at, status = nodesDir + "/", "proc/self/status"
	a := backend.Node{ID: 0, CPUs: []int{0, 1, 4, 5}, Bytes: 1 << 30}
	b := backend.Node{ID: 1, CPUs: []int{2, 3, 6, 7}, Bytes: 2 << 30}
	for _, c := range []struct {
		name   string
		change func(fstest.MapFS)
		want   []backend.Node
	}{
		{"two", func(fstest.MapFS) {}, []backend.Node{a, b}},
		{"taskset of one CPU each", func(m fstest.MapFS) {
			m[status] = file("Cpus_allowed_list:\t4,6\nMems_allowed_list:\t0-1\n")
		}, []backend.Node{{ID: 0, CPUs: []int{4}, Bytes: 1 << 30}, {ID: 1, CPUs: []int{6}, Bytes: 2 << 30}}},
		{"CPUs of one node", func(m fstest.MapFS) {
			m[status] = file("Cpus_allowed_list:\t2-3\nMems_allowed_list:\t0-1\n")
		}, nil},
		{"memory of one node", func(m fstest.MapFS) {
			m[status] = file("Cpus_allowed_list:\t0-7\nMems_allowed_list:\t1\n")
		}, nil},
		{"a node of memory only", func(m fstest.MapFS) {
			m[at+"node2/cpulist"], m[at+"node2/meminfo"] = file("\n"), file("Node 2 MemTotal: 4194304 kB\n")
			m[status] = file("Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0-2\n")
		}, []backend.Node{a, b}},
		{"a node of CPUs only", func(m fstest.MapFS) { m[at+"node1/meminfo"] = file("Node 1 MemTotal: 0 kB\n") }, nil},
		{"memory of two of three", func(m fstest.MapFS) {
			m[at+"node2/cpulist"], m[at+"node2/meminfo"] = file("8,10\n"), file("Node 2 MemTotal: 0 kB\n")
			m[at+"node2/distance"] = file("32 12 10\n")
			m[status] = file("Cpus_allowed_list:\t0-9\nMems_allowed_list:\t0-2\n")
		}, []backend.Node{a, {ID: 1, CPUs: []int{2, 3, 6, 7, 8}, Bytes: b.Bytes}}},
		{"numbers with a gap", func(m fstest.MapFS) {
			m[at+"node10/cpulist"], m[at+"node10/meminfo"] = m[at+"node1/cpulist"], m[at+"node1/meminfo"]
			delete(m, at+"node1/cpulist")
			delete(m, at+"node1/meminfo")
			m[status] = file("Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0,10\n")
		}, []backend.Node{a, {ID: 10, CPUs: b.CPUs, Bytes: b.Bytes}}},
		{"no status", func(m fstest.MapFS) { delete(m, status) }, nil},
		{"a torn list", func(m fstest.MapFS) { m[at+"node1/cpulist"] = file("2-") }, nil},
	} {
		m := twoNodes()
		c.change(m)
		if got := nodes(m); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := read(twoNodes()).Nodes; len(got) != 2 {
		t.Errorf("the facts have the nodes %+v", got)
	}
}

// FuzzList: a list is ascending without repeats, whatever the text.
func FuzzList(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8,10-11", "3,1-2,2", "5-1", "0-4294967295", "-1", "0-", "1,,2", "0-65535,0-65535"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := list(s)
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || len(got) > maxList {
			t.Errorf("%q: %d numbers, from %v", s, len(got), got[:min(8, len(got))])
		}
	})
}

// TestList reads the forms that the system prints.
func TestList(t *testing.T) {
	for s, want := range map[string][]int{"": nil, "0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "2,0-2": {0, 1, 2}, "x": nil, "3-1": nil, "0-70000": nil} {
		if got := list(s); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}
