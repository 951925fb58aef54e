package cost

import "math"

// Time is how long a launch takes, in seconds, and what bounds it.
type Time struct {
	Memory, Matrix, Issue, Longest float64 // each alone
	Waits                          float64 // what a block does one after the other: products, and what waits for them
	Moves                          float64 // through shared memory, and to it
	Fixed                          float64 // the gap before the launch, its ramp
}

func (t Time) most() float64 { return max(t.Memory, t.Matrix, t.Issue, t.Longest, t.Waits, t.Moves) }

// Seconds returns the whole time: the longest of the six, and Fixed.
func (t Time) Seconds() float64 { return t.most() + t.Fixed }

// Bound names what bounds the launch.
func (t Time) Bound() string {
	switch most := t.most(); {
	case t.Fixed > most:
		return "launch"
	case most == t.Memory:
		return "memory"
	case most == t.Matrix:
		return "matrix"
	case most == t.Issue:
		return "issue"
	case most == t.Waits:
		return "waits"
	case most == t.Moves:
		return "shared memory"
	}
	return "longest block"
}

// rate returns the operations a second of a unit on all multiprocessors.
func (g GPU) rate(u Unit) float64 {
	wide := max(g.FP8, g.BF16)
	switch u {
	case Sync:
		return g.BF16 * g.Shares.Sync
	case Sync8:
		return wide * g.Shares.Sync
	case Warpgroup:
		return g.BF16 * g.Shares.Warpgroup
	case Group8:
		return wide * g.Shares.Warpgroup
	}
	return 256 * float64(g.SMs) * g.Clock // 128 fused multiply-adds a clock and multiprocessor
}

// Time returns how long a launch with this work takes. Multiprocessors take one block after the other: where the
// blocks are no multiple of them, some compute while others have none.
func (g GPU) Time(w Work) Time {
	gap := g.Shares.Gap
	if w.Dependent && g.Shares.Dependent > 0 {
		gap = g.Shares.Dependent
	}
	t := Time{Fixed: gap + g.Shares.Ramp}
	if w.Blocks == 0 {
		return Time{Fixed: gap}
	}
	sms, blocks := float64(g.SMs), max(1, w.Blocks)
	used := min(sms, blocks)
	turns := math.Ceil(blocks/sms) * sms / blocks // of the busiest multiprocessor beside the mean
	one := g.Shares.SM * g.Clock                  // bytes a second of one multiprocessor
	memory := min(g.Bandwidth*g.Shares.Memory, used*one)
	second := memory
	if w.Values < g.L2/2 {
		second = min(g.Bandwidth*g.Shares.L2, used*one)
	}
	if w.Dependent && g.Shares.Dependent > 0 {
		// Read in the gap, and before the first bytes would come: half of the ramp. What more is read while the kernel before
		// runs is not counted.
		t.Fixed -= min(w.Prefetched/memory, gap+g.Shares.Ramp/2)
	}
	slots := 4 * g.Clock * g.Shares.Issue // instructions a second of one multiprocessor
	t.Memory = (w.Weights+w.KV)/memory + w.Values/second
	t.Matrix = w.Issued / g.rate(w.Code.Unit) * turns
	t.Issue = w.Instructions / (slots * sms) * turns
	waits := g.waits(w)
	if waits > 0 {
		at := sms * g.resident(w) // blocks at once
		t.Waits = waits * math.Ceil(blocks/at) / blocks
		t.Moves = g.moves(w) / sms * turns
	}
	if w.Longest > 1 {
		t.Longest = w.Longest / blocks * max((w.Weights+w.KV)/one, w.Instructions/slots, w.Issued/g.rate(w.Code.Unit)*sms, waits)
	}
	return t
}

// waits returns the seconds that blocks take one after the other on one multiprocessor, each alone there; 0 for kernels whose warps do not meet
// in the loop that multiplies. A piece of work has its turns, which take as long as their steps or as what they move, and once what is around them. A block
// whose warps load for themselves begins with a read, in its launch's ramp or behind the block before it; warps that load for others are
// ahead by all stages, unless they are the slower ones.
func (g GPU) waits(w Work) float64 {
	c := w.Code
	if len(c.Turn) == 0 || w.Turns == 0 {
		return 0
	}
	l, loads := c.Load, 0.0 // instructions of a loading warp for a turn
	if l.Bytes > 0 {
		loads = (w.LoadTurns*l.Body + l.Around) * w.Tiles / w.Turns
	}
	turn, ends := g.turn(c, w.Warps, loads)
	pieces := max(w.Blocks, w.Pieces)
	if w.Behind > 0 && ends > 0 { // one warpgroup ends a piece while the other multiplies alone, in less time for each turn
		alone, end := g.turn(c, w.Warps/2, loads)
		ends = max(0, ends-min(end, w.Behind*alone)*turn/alone)
	}
	took := w.Turns * turn
	if w.HalfTurns > 0 {
		half, _ := g.turn(w.Half, w.Warps, loads)
		took += w.HalfTurns * (half - turn)
	}
	seconds := max(took, g.moves(w)) + pieces*ends
	if l.Bytes == 0 {
		return seconds + max(0, pieces-float64(g.SMs)*g.resident(w))*g.Shares.Latency
	}
	return max(seconds, w.Turns*loads/(g.Clock*g.Shares.Issue)+w.Tiles*w.LoadTurns*l.Waits*g.Shares.Latency)
}

// resident returns the blocks of a launch that a multiprocessor has at once.
func (g GPU) resident(w Work) float64 {
	r, warps := capacity[g.Capability], max(1, w.Block.Warps)
	n := min(r.warps/warps, r.shared<<10/(w.Block.Shared+1024))
	if w.Code.Registers > 0 {
		n = min(n, 65536/(int(w.Code.Registers+7)/8*8*32*warps))
	}
	return float64(max(1, n))
}

// moves returns the seconds in which one multiprocessor moves what turns read and write in its shared memory, and what comes to it from the
// second cache.
func (g GPU) moves(w Work) float64 {
	loading := w.Tiles * w.LoadTurns * loadingWarps
	shared := w.Turns*w.Warps*w.Code.Shared + loading*w.Code.Load.Shared
	loaded := 32 * (w.Turns*w.Warps*w.Code.Loads + loading*w.Code.Load.Bytes)
	return max(shared/g.Shares.Banks, loaded/g.Shares.SM) / g.Clock
}

// turn returns the seconds of a turn of the loop of a block's warps alone on a multiprocessor, and those that the begin and the end of a piece
// take more than turns for their products. All warps are at the same step: while they compute or meet, only those groups of products are under
// way that they began before and do not wait for; products of mma.sync are beside those instructions of the same turn that are other warps'. Warps
// that load, with some instructions a turn, take these slots evenly.
func (g GPU) turn(c Code, warps, loads float64) (turn, ends float64) {
	rate := units{issue: warps / (4 * g.Clock * g.Shares.Issue), multiply: warps * float64(g.SMs) / g.rate(c.Unit), meet: g.Shares.Meet / g.Clock}
	steady := func() float64 {
		line, last := rate, 0.0
		for range 3 {
			last = line.now
			line.run(c.Turn)
		}
		return line.now - last
	}
	if !c.grouped() {
		meets := 0.0
		for _, x := range c.Turn {
			meets += x.Meets
		}
		return max(c.Body*rate.issue, c.Ops*rate.multiply) + meets*rate.meet, max(0, c.Ends[0].Instructions-c.Body) * rate.issue
	}
	turn = steady()
	if taken := loads / (g.Clock * g.Shares.Issue) / turn; taken > 0 {
		rate.issue /= max(0.1, 1-taken)
		turn = steady()
	}
	ops := 0.0
	for _, x := range c.Ends {
		ops += x.Ops
	}
	piece := rate
	piece.run(c.Ends)
	return turn, max(0, max(piece.now, piece.free)-math.Floor(ops/c.Ops+1e-9)*turn) // a part of a turn is begun in vain
}

// units is the time of a block's warps, and of the matrix units, which work on one group of products after the other.
type units struct {
	issue, multiply float64   // seconds of an instruction, an operation, of each warp
	meet            float64   // seconds of a wait for other warps that have come
	now, free       float64   // of the warps; when the units have done what was begun
	groups          []float64 // when each is done
}

func (u *units) run(steps []Step) {
	for _, x := range steps {
		u.now += x.Instructions*u.issue + x.Meets*u.meet
		if x.Ops > 0 {
			u.free = max(u.free, u.now) + x.Ops*u.multiply
			u.groups = append(u.groups, u.free)
		}
		if n := len(u.groups) - x.Leaves; x.Leaves >= 0 && n > 0 {
			u.now = max(u.now, u.groups[n-1])
			u.groups = u.groups[n:]
		}
	}
}

// Limit returns the seconds in which the GPU reads the weights, keys and values of launches at what its memory reaches, or
// multiplies at what its matrix units reach, whichever takes longer: the roof under which a step stays. Activations do
// not count: kernels that pass them on in registers would not move them.
func (g GPU) Limit(works []Work) float64 {
	memory, matrix := 0.0, 0.0
	for _, w := range works {
		memory += (w.Weights + w.KV) / (g.Bandwidth * g.Shares.Memory)
		unit := Warpgroup
		if w.Code.Unit == Sync8 || w.Code.Unit == Group8 {
			unit = Group8
		}
		matrix += w.Flops / g.rate(unit)
	}
	return max(memory, matrix)
}
