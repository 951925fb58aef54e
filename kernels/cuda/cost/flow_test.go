package cost

import (
	"maps"
	"slices"
	"strings"
)

// way is what a way through code does, and the blocks that it leads through.
type way struct {
	ops, scalar, stores, async, wide, loads, count float64 // wide: loads of 8 bytes and more
	data                                           float64 // of loads, what is no index: those that are wide, if some are
	through                                        []int
}

// better reports whether a way does more than another: it multiplies more, stores more, copies more, loads more, and
// then has fewer instructions. products: some way multiplies.
func (w way) better(v way, products bool) bool {
	a := [6]float64{w.ops, w.stores, w.scalar, w.async, w.loads, -w.count}
	b := [6]float64{v.ops, v.stores, v.scalar, v.async, v.loads, -v.count}
	if products { // before them what loads all data, behind them the shortest way that stores all: loads there are exceptions
		a[2], b[2], a[4], b[4] = 0, 0, w.data, v.data
		if w.ops+v.ops > 0 {
			a[4], b[4] = 0, 0
		}
	}
	return slices.Compare(a[:], b[:]) > 0
}

// graph is the code of a kernel as blocks without branches.
type graph struct {
	does []way
	code [][]instruction
	next [][]int
	doms []map[int]bool // the blocks through which each way to a block leads
}

// graphOf returns the blocks of a kernel; the first is its begin.
func graphOf(list []instruction) graph {
	at, starts := map[string]int{}, []int{0}
	for i, x := range list {
		if x.label != "" || i > 0 && (strings.HasPrefix(list[i-1].op, "BRA") || list[i-1].op == "EXIT") {
			if starts[len(starts)-1] != i {
				starts = append(starts, i)
			}
		}
		if x.label != "" {
			at[x.label] = len(starts) - 1
		}
	}
	g := graph{make([]way, len(starts)), make([][]instruction, len(starts)), make([][]int, len(starts)), make([]map[int]bool, len(starts))}
	for n, from := range starts {
		to := len(list)
		if n+1 < len(starts) {
			to = starts[n+1]
		}
		w, falls := &g.does[n], true
		g.code[n] = list[from:to]
		for _, x := range list[from:to] {
			if x.op == "" {
				continue
			}
			ops, _ := multiplied(x.op)
			w.ops, w.loads, w.count = w.ops+ops, w.loads+loaded(x.op), w.count+1
			if n := moved(x.op, "LDG"); n >= 8 {
				w.wide += n
			}
			switch {
			case strings.HasPrefix(x.op, "FFMA"):
				w.scalar += 64
			case strings.HasPrefix(x.op, "LDGSTS"):
				w.async += loaded(x.op)
			case strings.HasPrefix(x.op, "STG"):
				w.stores += stored(x.op)
			case strings.HasPrefix(x.op, "BRA"):
				if b, ok := at[x.to]; ok {
					g.next[n] = append(g.next[n], b)
				}
				falls = x.guarded || x.op == "BRA.DIV" // which is taken where the lanes of a warp are not together
			case x.op == "EXIT":
				falls = x.guarded
			}
		}
		if falls && n+1 < len(starts) {
			g.next[n] = append(g.next[n], n+1)
		}
	}
	g.dominate()
	return g
}

// dominate finds doms.
func (g graph) dominate() {
	g.doms[0] = map[int]bool{0: true}
	for again := true; again; {
		again = false
		for n, to := range g.next {
			if g.doms[n] == nil {
				continue
			}
			for _, m := range to {
				if g.doms[m] == nil {
					g.doms[m], again = map[int]bool{m: true}, true
					for d := range g.doms[n] {
						g.doms[m][d] = true
					}
					continue
				}
				for d := range g.doms[m] {
					if d != m && !g.doms[n][d] {
						delete(g.doms[m], d)
						again = true
					}
				}
			}
		}
	}
}

// loops returns the blocks of each loop, by the block that it begins with.
func (g graph) loops() map[int]map[int]bool {
	before := make([][]int, len(g.next))
	for n, to := range g.next {
		for _, m := range to {
			before[m] = append(before[m], n)
		}
	}
	out := map[int]map[int]bool{}
	for n, to := range g.next {
		for _, head := range to {
			if !g.doms[n][head] {
				continue
			}
			if out[head] == nil {
				out[head] = map[int]bool{head: true}
			}
			for list := []int{n}; len(list) > 0; {
				m := list[len(list)-1]
				list = list[:len(list)-1]
				if !out[head][m] {
					out[head][m] = true
					list = append(list, before[m]...)
				}
			}
		}
	}
	return out
}

// best returns the best way that begins with a block and stays in some (nil: all), each loop once: to its end, or back
// to its begin.
func (g graph) best(head int, in map[int]bool) way {
	var order []int
	seen := map[int]bool{}
	var visit func(n int)
	visit = func(n int) {
		seen[n] = true
		for _, m := range g.next[n] {
			if !seen[m] && (in == nil || in[m]) {
				visit(m)
			}
		}
		order = append(order, n)
	}
	visit(head)
	place := map[int]int{}
	for i, n := range order {
		place[n] = i
	}
	at := map[int]way{head: {}}
	any := func(of func(way) float64) bool {
		return slices.ContainsFunc(order, func(n int) bool { return of(g.does[n]) > 0 })
	}
	products := any(func(w way) float64 { return w.ops })
	data := func(w way) float64 { return w.loads }
	if any(func(w way) float64 { return w.async }) {
		data = func(way) float64 { return 0 } // copies are the data
	} else if any(func(w way) float64 { return w.wide }) {
		data = func(w way) float64 { return w.wide }
	}
	var top way
	for i := len(order) - 1; i >= 0; i-- {
		n := order[i]
		w, ok := at[n]
		if !ok {
			continue
		}
		d := g.does[n]
		w = way{w.ops + d.ops, w.scalar + d.scalar, w.stores + d.stores, w.async + d.async, w.wide + d.wide, w.loads + d.loads, w.count + d.count, w.data + data(d), append(slices.Clip(w.through), n)}
		last := in == nil && len(g.next[n]) == 0
		for _, m := range g.next[n] {
			if m == head {
				last = true
			} else if old, ok := at[m]; place[m] < i && (in == nil || in[m]) && (!ok || w.better(old, products)) {
				at[m] = w
			}
		}
		if last && (top.count == 0 || w.better(top, products)) {
			top = w
		}
	}
	return top
}

// through returns the instructions of the outermost loops that a way passes, each once.
func (g graph) through(w way, loops map[int]map[int]bool) (count float64) {
	for head, in := range loops {
		outermost := slices.Contains(w.through, head)
		for other, body := range loops {
			outermost = outermost && (other == head || !body[head])
		}
		if outermost {
			count += g.best(head, in).count
		}
	}
	return count
}

// byGroup returns the counts of the way that rounds a row with a scale for each group of 128 columns. The way with one scale for the
// row has a barrier behind a maximum, where warps exchange the largest number of the row. The 16 lanes of a group exchange theirs in a loop of four turns.
func (g graph) byGroup(loops map[int]map[int]bool) (path, all float64) {
	has := func(n int, ops ...string) bool { // in this order
		for _, x := range g.code[n] {
			if len(ops) > 0 && strings.HasPrefix(x.op, ops[0]) {
				ops = ops[1:]
			}
		}
		return len(ops) == 0
	}
	cut := false
	w := g.without(func(n int) bool {
		whole := has(n, "VIMNMX", "BAR.SYNC")
		cut = cut || whole
		return whole
	}).best(0, nil)
	if !cut {
		return 0, 0
	}
	path, all = w.count, g.through(w, loops)
	for head, in := range loops {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(in)), func(n int) bool { return has(n, "SHFL") }) {
			continue
		}
		for around, body := range loops {
			if around == head || !body[head] || !slices.Contains(w.through, around) {
				continue
			}
			more := 4 * g.best(head, in).count // the shortest way has none
			path, all = path+more, all+more
		}
	}
	return path, all
}

// moreThan reports whether a loop does more of a kernel's work. A loop around the one that multiplies, over pieces of work,
// multiplies as much and has more instructions.
func (w way) moreThan(other way, unit Unit) bool {
	work := func(w way) []float64 {
		if unit == Scalar {
			return []float64{w.ops, w.scalar, w.loads, -w.count}
		}
		return []float64{w.ops, -w.count}
	}
	return slices.Compare(work(w), work(other)) > 0
}

// steps returns the steps of a way.
func (g graph) steps(w way) (out []Step) {
	now := Step{Leaves: -1}
	next := func() {
		out = append(out, now)
		now = Step{Leaves: -1}
	}
	for _, n := range w.through {
		for _, x := range g.code[n] {
			if x.op == "" {
				continue
			}
			ops, _ := multiplied(x.op)
			now.Instructions++
			now.Ops += ops
			if meets.MatchString(x.op) {
				now.Meets++
			}
			switch {
			case x.leaves >= 0:
				now.Leaves = x.leaves
				next()
			case x.ends:
				next()
			}
		}
	}
	if now.Instructions > 0 {
		next()
	}
	return out
}

// shared returns the bytes that a way moves to and from shared memory, for a warp.
func (g graph) shared(w way) (bytes float64) {
	for _, n := range w.through {
		for _, x := range g.code[n] {
			bytes += x.shared
		}
	}
	return bytes
}

// without returns a copy of the graph in which no way leads into some blocks.
func (g graph) without(cut func(n int) bool) graph {
	out := graph{slices.Clone(g.does), g.code, make([][]int, len(g.next)), g.doms}
	for n, to := range g.next {
		out.next[n] = slices.DeleteFunc(slices.Clone(to), cut)
	}
	return out
}

// single returns the graph with bytes as stores, and without what not every launch does behind a loop: where warps of a block meet once more, to share
// sums with other blocks or to gate them. in is the loop's blocks; without them warps meet at its begin alone.
func (g graph) single(loop int, in map[int]bool) graph {
	out := g.without(func(n int) bool {
		return !g.doms[loop][n] && !in[n] && slices.ContainsFunc(g.code[n], func(x instruction) bool { return strings.HasPrefix(x.op, "BAR.SYNC") && !x.guarded })
	})
	for n, code := range g.code {
		out.does[n].stores = 0
		for _, x := range code {
			out.does[n].stores += stored(x.op)
		}
	}
	return out
}

// gating returns what a way has behind the products where it gates its sums (Gating); loop is where the loop of products begins. The loop over pieces is the
// smallest one around which nothing multiplies, with exponentials, an exchange between lanes and a store; its way is the shortest one that stores with
// all exponentials and divisions. A loop around it is that over panels.
func (g graph) gating(loop int, loops map[int]map[int]bool) (out Gating) {
	pieces, panels := -1, -1
	for _, head := range slices.Sorted(maps.Keys(loops)) {
		in := loops[head]
		if in[loop] || loops[loop][head] || g.best(head, in).ops > 0 {
			continue
		}
		has := map[string]bool{}
		for n := range in {
			for _, x := range g.code[n] {
				op, _, _ := strings.Cut(x.op, ".")
				has[op] = true
			}
		}
		if !has["MUFU"] || !has["SHFL"] || !has["STG"] || !has["LDS"] {
			continue
		}
		if pieces < 0 || len(in) < len(loops[pieces]) {
			pieces = head
		}
	}
	if pieces < 0 {
		return out
	}
	for _, head := range slices.Sorted(maps.Keys(loops)) {
		if in := loops[head]; head != pieces && in[pieces] && !in[loop] && (panels < 0 || len(in) < len(loops[panels])) {
			panels = head
		}
	}
	// Only what leads through the loop counts, and not where splits or narrow results are shared with other blocks. A panel's pieces are in shared memory.
	way := g.without(func(n int) bool {
		return !g.doms[loop][n] && slices.ContainsFunc(g.code[n], func(x instruction) bool { return strings.HasPrefix(x.op, "MEMBAR.SC") })
	})
	for n, code := range g.code {
		d := &way.does[n]
		d.stores, d.scalar, d.loads, d.async = 0, 0, 0, 0
		for _, x := range code {
			switch {
			case loops[pieces][n] && strings.HasPrefix(x.op, "MUFU"):
				d.stores += 1e3
			case loops[pieces][n]:
				d.stores += 1e6 * stored(x.op)
			default:
				d.stores += moved(x.op, "STS")
			}
		}
	}
	out.Piece = way.best(pieces, loops[pieces]).count
	if panels >= 0 {
		out.Panel = way.best(panels, loops[panels]).count
	}
	steps := g.steps(way.best(0, nil))
	out.Around = steps[len(steps)-1].Instructions
	return out
}

// loading returns the loop of warps that load for others, where registers are given from some warps to others: the innermost of the loops in which
// nothing multiplies that copy most, also what they widen; a loop around another copies more if it is half as much again. Around it is the loop over tiles, and around that one the loop over pieces of work.
func (g graph) loading(list []instruction, loops map[int]map[int]bool) (l Loading) {
	if !slices.ContainsFunc(list, func(x instruction) bool { return strings.HasPrefix(x.op, "USETMAXREG") }) {
		return l
	}
	g.does = slices.Clone(g.does)
	for n, code := range g.code {
		for _, x := range code {
			g.does[n].async += moved(x.op, "STS")
		}
	}
	least, tiles, copies := -1, -1, 0.0
	var around []int // heads of loops
	for _, head := range slices.Sorted(maps.Keys(loops)) {
		in := loops[head]
		w := g.best(head, in)
		bytes, waits := 0.0, 0.0
		for _, n := range w.through {
			for _, x := range g.code[n] {
				bytes += moved(x.op, "LDGSTS")
				if x.op == "DEPBAR.LE" {
					waits++
				}
			}
		}
		if bytes == 0 || w.ops > 0 {
			continue
		}
		around = append(around, head)
		inner := least >= 0 && loops[least][head] && 1.5*w.async >= copies // the loop around it writes little more
		if least < 0 || inner || w.async > copies && !(in[least] && w.async <= 1.5*copies) {
			l, least, copies = Loading{Bytes: bytes, Shared: g.shared(w), Body: w.count, Waits: waits}, head, w.async
		}
	}
	most := 0
	for _, head := range around { // of those around it the second largest: the largest is that over pieces
		most = max(most, len(loops[head]))
	}
	for _, head := range around {
		if in := loops[head]; head != least && in[least] && len(in) < most && (tiles < 0 || len(in) > len(loops[tiles])) {
			tiles = head
		}
	}
	if tiles >= 0 {
		l.Around = g.best(tiles, loops[tiles]).count - l.Body
	}
	return l
}

// count returns the counts of a kernel: its loop is the one that multiplies most on the matrix units, the innermost of equal
// ones, for warpgroups of those in which no other loop multiplies; without one the innermost that multiplies most in float32, without one
// the innermost that loads most.
func count(list []instruction) Code {
	unit := Scalar
	for _, x := range list {
		if _, u := multiplied(x.op); u != 0 {
			unit = u
		}
	}
	g := graphOf(list)
	loops := g.loops()
	var top way
	loop := 0 // where it begins
	for _, head := range slices.Sorted(maps.Keys(loops)) {
		in := loops[head]
		inner := true
		for other, body := range loops {
			if unit == Warpgroup || unit == Group8 { // warps wait in loops that do not multiply
				inner = inner && (other == head || !in[other] || g.best(other, body).ops == 0)
			} else {
				inner = inner && (other == head || !in[other])
			}
		}
		if unit != Sync && unit != Sync8 && !inner {
			continue
		}
		w := g.best(head, in)
		if w.moreThan(top, unit) {
			top, loop = w, head
		}
	}
	path := g.best(0, nil)
	if top.ops > 0 && path.ops == 0 { // it ends where a loop around the other has no more work
		path.count += top.count
	}
	c := Code{Unit: unit, Ops: top.ops, Loads: top.loads, Body: top.count, Path: path.count}
	if c.grouped() {
		c.Turn, c.Shared, c.Load = g.steps(top), g.shared(top), g.loading(list, loops)
		one := g.single(loop, loops[loop])
		piece := one.best(0, nil)
		if piece.ops == 0 { // its pieces are the loop around, of those that multiply most the longest
			for _, head := range slices.Sorted(maps.Keys(loops)) {
				in := loops[head]
				if w := one.best(head, in); w.ops > piece.ops || w.ops == piece.ops && w.count > piece.count {
					piece = w
				}
			}
		}
		c.Ends = g.steps(piece)
	} else if turn := g.steps(top); unit != Scalar && len(turn) == 1 && turn[0].Meets > 0 {
		if piece := g.single(loop, nil).best(0, nil); piece.ops == top.ops { // its one loop
			c.Turn, c.Ends, c.Shared = turn, g.steps(piece), g.shared(top)
		}
	}
	if len(c.Turn) > 0 {
		c.Gating = g.gating(loop, loops)
	}
	if unit == Scalar {
		c.Ops = top.scalar
		if all := g.through(path, loops); all > top.count {
			c.Loops = all
		}
		c.GroupPath, c.GroupLoops = g.byGroup(loops)
	}
	return c
}
