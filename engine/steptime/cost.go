package steptime

import (
	"math"
	"math/bits"
)

// The features of a step: 1, tokens that decode, their reads, tokens of prompts,
// their reads.
const features = 5

// kinds of steps by their tokens of prompts: none, up to Grain, up to twice that, and so
// on. Each kind keeps sums of its own, so that a thousand steps without a prompt do
// not make forgotten what prompts cost.
const kinds = 20

const (
	memory  = 1 - 1.0/24 // what a kind keeps of its sums, each time it is seen
	quick   = 0.2        // what the level follows a single step by
	slow    = 0.1        // what a kind's shape, and the spread, follow it by
	wide    = 1.15       // beyond which two steps that agree are a change of the device
	warm    = 8          // steps after which a step is held against what was foretold
	widest  = 0.15       // spread at most that is reckoned with
	largest = 8          // a step is worth at most so many times what was foretold
)

// cost foretells a step's seconds: a linear function of the features, fitted by least
// squares of relative errors over steps that fade (sums of the kinds together), times
// the level, which follows the device when it slows down, times the shape of a
// kind, for what is not linear. No coefficient is negative.
type cost struct {
	kinds [kinds]kind
	theta [features]float64
	stale bool // theta is of older sums
	seen  int  // steps
	level float64
	last  float64 // ratio of the step before
	sq    float64 // mean square of the logarithm of the ratio
}

// kind are the sums of one kind of steps: of z·zᵀ and of z, where z are the features over
// the seconds.
type kind struct {
	products [features][features]float64
	sums     [features]float64
	seen     int
	shape    float64
}

func newCost() cost {
	c := cost{level: 1, last: 1}
	for i := range c.kinds {
		c.kinds[i].shape = 1
	}
	return c
}

func (w Work) features() [features]float64 {
	return [features]float64{1, float64(w.Decode), float64(w.Reads), float64(w.Prompt), float64(w.PromptReads)}
}

// kindOf is the kind of a step of that many tokens of prompts, which is its upper end.
func kindOf(prompt int) int {
	if prompt == 0 {
		return 0
	}
	return min(kinds-1, 1+bits.Len(uint((prompt-1)/Grain)))
}

// foretell is the seconds of a step; 0 before anything was learned.
func (c *cost) predict(w Work) float64 {
	if c.stale {
		c.fit()
	}
	t := 0.0
	for i, x := range w.features() {
		t += c.theta[i] * x
	}
	return t * c.level * c.shape(w.Prompt)
}

// shape is interpolated between the kinds, whose upper ends lie powers of two apart. A
// kind not seen is like the next below it.
func (c *cost) shape(prompt int) float64 {
	if prompt == 0 {
		return 1
	}
	k := kindOf(prompt)
	high := c.shapeOf(k)
	if k == 1 || k == kinds-1 {
		return high
	}
	end := float64(int(Grain) << (k - 1))
	part := 1 + math.Log2(float64(prompt)/end) // 0 at the lower end, 1 at the upper
	return (1-part)*c.shapeOf(k-1) + part*high
}

func (c *cost) shapeOf(k int) float64 {
	for ; k > 0; k-- {
		if c.kinds[k].seen > 0 {
			return c.kinds[k].shape
		}
	}
	return 1
}

// spread is how far steps lie from what was foretold, as a share of it.
func (c *cost) spread() float64 { return min(widest, math.Sqrt(c.sq)) }

// learn adds a step.
func (c *cost) learn(w Work, seconds float64) {
	c.seen++
	k := &c.kinds[kindOf(w.Prompt)]
	if was := c.predict(w); was > 0 && c.seen > warm && k.seen > 0 {
		seconds = min(max(seconds, was/largest), largest*was)
		c.follow(seconds/was, k, w.Prompt > 0)
	}
	k.seen++
	var z [features]float64
	for i, x := range w.features() {
		z[i] = x / (seconds / c.level)
	}
	for i := range z {
		k.sums[i] = memory*k.sums[i] + z[i]
		for j := range z {
			k.products[i][j] = memory*k.products[i][j] + z[i]*z[j]
		}
	}
	c.stale = true
}

// follow moves level, shape and spread by the ratio of a step's seconds to what was
// foretold. One step alone moves the level a little, whatever it was; two that agree
// are a change of the device.
func (c *cost) follow(r float64, k *kind, prompt bool) {
	far := max(wide, 1+3*c.spread())
	step := math.Pow(min(max(r, 0.5), 2), quick)
	agree := r > far && c.last > far || r < 1/far && c.last < 1/far
	if agree {
		step = min(r, c.last)
		if r < 1 {
			step = max(r, c.last)
		}
	}
	if c.level *= step; c.level < 0.5 || c.level > 2 {
		c.fold()
	}
	if c.last = r; agree {
		c.last = 1
		return
	}
	if prompt {
		k.shape = min(max(k.shape*math.Pow(min(max(r, 0.5), 2), slow), 0.25), 4)
	}
	log := min(math.Abs(math.Log(r)), 2*widest)
	c.sq += slow * (log*log - c.sq)
}

// fold puts the level into the sums.
func (c *cost) fold() {
	for n := range c.kinds {
		k := &c.kinds[n]
		for i := range features {
			k.sums[i] /= c.level
			for j := range features {
				k.products[i][j] /= c.level * c.level
			}
		}
	}
	c.level, c.stale = 1, true
}

// ridge is added to the diagonal of the sums, scaled to 1. What the steps do not tell
// apart is so given to the first feature, which prompts do not change: a chunk may then
// grow, and tell.
var ridge = [features]float64{1e-5, 2e-4, 2e-4, 2e-4, 5e-4}

// fit solves for theta, leaving out one coefficient after the other that would be
// negative.
func (c *cost) fit() {
	c.stale = false
	var a [features][features]float64
	var y [features]float64
	for k := range c.kinds {
		for i := range features {
			y[i] += c.kinds[k].sums[i]
			for j := range features {
				a[i][j] += c.kinds[k].products[i][j]
			}
		}
	}
	var out [features]bool
	for i := range features {
		out[i] = a[i][i] <= 0
	}
	for range features {
		c.theta = solve(a, y, out)
		worst := -1
		for i, v := range c.theta {
			if v < 0 && (worst < 0 || v*math.Sqrt(a[i][i]) < c.theta[worst]*math.Sqrt(a[worst][worst])) {
				worst = i
			}
		}
		if worst < 0 {
			return
		}
		out[worst] = true
	}
}

// solve is x of a·x = y for the features that are not out, whose others are 0, by
// Cholesky's decomposition of a scaled to a diagonal of 1, and ridge.
func solve(a [features][features]float64, y [features]float64, out [features]bool) (x [features]float64) {
	var every [features]int
	in := every[:0]
	var scale [features]float64
	for i := range features {
		if !out[i] {
			in, scale[i] = append(in, i), math.Sqrt(a[i][i])
		}
	}
	var l [features][features]float64
	var v [features]float64
	for p, i := range in {
		for q, j := range in[:p+1] {
			s := a[i][j] / scale[i] / scale[j]
			for r := range q {
				s -= l[p][r] * l[q][r]
			}
			if p == q {
				l[p][p] = math.Sqrt(max(s, 0) + ridge[i])
			} else {
				l[p][q] = s / l[q][q]
			}
		}
		v[p] = y[i] / scale[i]
		for r := range p {
			v[p] -= l[p][r] * v[r]
		}
		v[p] /= l[p][p]
	}
	for p := len(in) - 1; p >= 0; p-- {
		for r := p + 1; r < len(in); r++ {
			v[p] -= l[r][p] * v[r]
		}
		v[p] /= l[p][p]
		x[in[p]] = v[p] / scale[in[p]]
	}
	return x
}
