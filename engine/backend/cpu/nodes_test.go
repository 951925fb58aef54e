package cpu

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
)

// nodesOf returns the facts of a machine whose nodes have these numbers of CPUs.
func nodesOf(cpus ...int) backend.Facts {
	f := backend.Facts{Variants: []string{avx512, avx2, generic}, PageBytes: 4096, HugeBytes: 2 << 20}
	for id, n := range cpus {
		node := backend.Node{ID: id, Bytes: 64 << 30}
		for range n {
			node.CPUs = append(node.CPUs, f.Cores)
			f.Cores++
		}
		f.Nodes = append(f.Nodes, node)
	}
	return f
}

// TestSpread: threads follow the CPUs of nodes, and a machine or a number of threads without two
// nodes places nothing.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		facts    backend.Facts
		settings backend.Settings
		want     []int
		why      string
	}{
		{nodesOf(32, 32), backend.Settings{}, []int{32, 32}, "threads: 32 on node 0, 32 on node 1;"},
		{nodesOf(32, 32), backend.Settings{Threads: 5}, []int{3, 2}, "threads: 3 on node 0, 2 on node 1;"},
		{nodesOf(6, 2), backend.Settings{Threads: 4}, []int{3, 1}, "threads: 3 on node 0, 1 on node 1;"},
		{nodesOf(2, 2), backend.Settings{Threads: 64}, []int{32, 32}, "threads: 32 on node 0, 32 on node 1;"},
		{nodesOf(4, 4, 4, 4), backend.Settings{Threads: 3}, []int{1, 1, 1}, "threads: 1 on node 0, 1 on node 1, 1 on node 2;"},
		{nodesOf(8, 8), backend.Settings{Threads: 1}, nil, "the threads, 1, run on one node"},
		{nodesOf(8, 8), backend.Settings{NUMA: backend.NUMAOff}, nil, "as set"},
		{nodesOf(make([]int, 65)...), backend.Settings{Threads: 2}, nil, "the machine has node 64"},
	} {
		l, err := newLayout(c.facts, c.settings)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		sum := 0
		for _, n := range l.nodes {
			got, sum = append(got, n.threads), sum+n.threads
		}
		last := l.Choices()[len(l.Choices())-1]
		if !reflect.DeepEqual(got, c.want) || got != nil && sum != l.threads || last.Name != "numa" || !strings.HasPrefix(last.Why, c.why) {
			t.Errorf("%d nodes, %+v: threads %v of %d, want %v; %+v", len(c.facts.Nodes), c.settings, got, l.threads, c.want, last)
		}
	}
	one := nodesOf(8)
	one.Nodes = nil
	l, err := newLayout(one, backend.Settings{})
	if err != nil || l.nodes != nil || l.Choices()[len(l.Choices())-1].Name != "huge pages" {
		t.Errorf("one node: %+v, %v", l.Choices(), err)
	}
	if _, err := newLayout(one, backend.Settings{NUMA: "on"}); err == nil {
		t.Error("NUMA on is accepted")
	}
}

// product returns a matrix to multiply.
func product(name string, rows, cols int, f kernels.Format) backend.WeightSpec {
	return backend.WeightSpec{Name: name, Rows: rows, Cols: cols, Source: f, Use: backend.Multiply, Parts: []backend.Part{{Tensor: name, Rows: rows, Format: f}}}
}

// placed is weights at offsets, as a reservation has them.
func placed(t testing.TB, l layout, specs []backend.WeightSpec) (list []weight, bytes int64) {
	t.Helper()
	for _, s := range specs {
		p, err := l.Weight(s)
		if err != nil {
			t.Fatal(err)
		}
		list, bytes = append(list, weight{p, bytes}), bytes+p.Bytes
	}
	return list, l.Round(bytes)
}

// far returns how many bytes of the panels that each node's threads take first are in the memory
// of another node, and how many bytes these panels have.
func far(l layout, specs []backend.WeightSpec, list []weight, regions []region) (out, of int64) {
	for i, s := range specs {
		if s.Use&backend.Multiply == 0 {
			continue
		}
		at := list[i].off
		for _, m := range l.matrices(s, list[i].Packed) {
			of += m.bytes
			for k := range l.nodes {
				from, to := at+m.bytes/m.panels*l.firstPanel(m.panels, k), at+m.bytes/m.panels*l.firstPanel(m.panels, k+1)
				for _, r := range regions {
					if r.node != k {
						out += max(0, min(to, r.at+r.bytes)-max(from, r.at))
					}
				}
			}
			at += m.bytes
		}
	}
	return out, of
}

// TestRegions: regions cover the arena in whole pages, without gaps, and what a node's threads
// take first is in the node's memory but for half a page at each cut.
func TestRegions(t *testing.T) {
	mixed := product("qkv", 3072, 2048, kernels.Invalid)
	mixed.Parts = []backend.Part{{Tensor: "q", Rows: 2048, Format: kernels.Q4_K}, {Tensor: "k", Rows: 512, Format: kernels.Q4_K}, {Tensor: "v", Rows: 512, Format: kernels.Q6_K}}
	table := backend.WeightSpec{Name: "table", Rows: 32000, Cols: 64, Source: kernels.BF16, Use: backend.Lookup, Parts: []backend.Part{{Tensor: "table", Rows: 32000, Format: kernels.BF16}}}
	norm := backend.WeightSpec{Name: "norm", Rows: 1, Cols: 2048, Source: kernels.F32, Use: backend.Vector, Parts: []backend.Part{{Tensor: "norm", Rows: 1, Elems: 2048, Format: kernels.F32}}}
	small := product("small", 33, 64, kernels.Q8_0)
	big := product("big", 32000, 2048, kernels.BF16)
	for _, c := range []struct {
		specs []backend.WeightSpec
		grain int64 // of the cuts that are furthest off
		cuts  int64
	}{
		{[]backend.WeightSpec{norm, product("a", 2048, 2048, kernels.BF16), norm, product("b", 2080, 4096, kernels.BF16)}, 4096, 4},
		{[]backend.WeightSpec{table, norm, mixed, small, small}, 4096, 2 * (2 + 2)},
		{[]backend.WeightSpec{table, norm}, 4096, 0},
		{[]backend.WeightSpec{small, big, norm, big}, 2 << 20, 6},
		{nil, 4096, 0},
	} {
		for _, f := range []backend.Facts{nodesOf(4, 4), nodesOf(3, 1), nodesOf(2, 2, 2, 1)} {
			l, err := newLayout(f, backend.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			list, bytes := placed(t, l, c.specs)
			regions := l.regions(c.specs, list, bytes)
			end := int64(0)
			for i, r := range regions {
				if r.at != end || r.at%4096 != 0 || r.bytes < 0 || i > 0 && r.node == regions[i-1].node {
					t.Errorf("%d weights on %d nodes: region %d is %+v behind %d", len(c.specs), len(f.Nodes), i, r, end)
				}
				end = r.at + r.bytes
			}
			if end != bytes && len(regions) > 0 {
				t.Errorf("regions end at %d of %d bytes", end, bytes)
			}
			cuts := c.cuts / 2 * int64(len(f.Nodes))
			if out, of := far(l, c.specs, list, regions); out > cuts*c.grain/2 {
				t.Errorf("%d weights on %d nodes: %d of %d bytes are far, at most %d are between cuts and pages", len(c.specs), len(f.Nodes), out, of, cuts*c.grain/2)
			}
			off, err := newLayout(f, backend.Settings{NUMA: backend.NUMAOff})
			if err != nil {
				t.Fatal(err)
			}
			if _, other := placed(t, off, c.specs); other != bytes {
				t.Errorf("an arena of %d bytes with nodes, %d without", bytes, other)
			}
		}
	}
}

// TestRegionsOfExperts: a stack of small experts is one region, whose pages alternate; experts of
// many huge pages are cut.
func TestRegionsOfExperts(t *testing.T) {
	for rows, want := range map[int]int{1536: 1, 1 << 16: 2 * 3} {
		experts := product("experts", rows, 512, kernels.BF16)
		experts.Experts = 3
		l, err := newLayout(nodesOf(4, 4), backend.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		specs := []backend.WeightSpec{experts}
		list, bytes := placed(t, l, specs)
		if got := l.regions(specs, list, bytes); len(got) != want || (want == 1) != (got[0].node == everywhere) {
			t.Errorf("experts of %d rows: regions %+v, want %d", rows, got, want)
		}
	}
}

// TestFirstPanel: the panels of a node are those that the kernels count for it.
func TestFirstPanel(t *testing.T) {
	l := layout{threads: 7, nodes: []node{{threads: 3}, {threads: 0}, {threads: 4}}}
	for _, n := range []int64{0, 1, 6, 7, 1000} {
		got := fmt.Sprint(l.firstPanel(n, 0), l.firstPanel(n, 1), l.firstPanel(n, 2), l.firstPanel(n, 3))
		if want := fmt.Sprint(0, n*3/7, n*3/7, n); got != want {
			t.Errorf("%d panels: %s, want %s", n, got, want)
		}
	}
}
