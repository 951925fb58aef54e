package steptime

import (
	"math"
	"math/bits"
)

// features is the number of features of a step: the constant 1, Decode, Reads, Prompt and
// PromptReads of its Work.
const features = 5

// kinds is the number of kinds of steps, by their prompt tokens: none, up to Grain, up to twice
// that, and so on. Each kind has its own sums, so that a thousand steps without a prompt do not
// erase what prompts cost.
const kinds = 20

const (
	memory  = 1 - 1.0/24 // factor of a kind's sums for each new step of that kind
	quick   = 0.2        // exponent by which the level follows the ratio of one step
	slow    = 0.1        // the same for the shape of a kind, and the weight of a step in sq
	wide    = 1.15       // two consecutive ratios beyond it mean that the device has changed
	warm    = 8          // number of first steps that are not compared with predictions
	widest  = 0.15       // upper limit of the spread
	largest = 8          // a step's time is clamped to this factor of its prediction
)

// cost predicts the seconds of a step as the product of three factors: a linear function of the
// features, the level and the shape. The linear function is fitted by least squares of relative
// errors over the sums of all kinds, in which older steps weigh less; no coefficient is
// negative. The level follows a device that becomes slower or faster. The shape of a kind
// corrects for what is not linear.
type cost struct {
	kinds [kinds]kind
	theta [features]float64 // coefficients
	stale bool              // the sums have changed since theta was fitted
	seen  int               // steps learned from
	level float64
	last  float64 // measured by predicted seconds of the previous step
	sq    float64 // running mean of the squared logarithm of that ratio
}

// kind holds the sums of one kind of steps: of z·zᵀ and of z, where z is the features divided
// by the seconds.
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

// kindOf returns the kind of a step with that many prompt tokens. Kind k > 0 ends at
// Grain·2^(k−1) tokens.
func kindOf(prompt int) int {
	if prompt == 0 {
		return 0
	}
	return min(kinds-1, 1+bits.Len(uint((prompt-1)/Grain)))
}

// predict returns the predicted seconds of a step; 0 before anything was learned.
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

// shape returns the factor for that many prompt tokens, interpolated between the upper ends of
// two kinds on a logarithmic scale.
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

// shapeOf returns the shape of kind k, or of the next lower kind that was seen.
func (c *cost) shapeOf(k int) float64 {
	for ; k > 0; k-- {
		if c.kinds[k].seen > 0 {
			return c.kinds[k].shape
		}
	}
	return 1
}

// spread returns the relative spread of steps around their predictions.
func (c *cost) spread() float64 { return min(widest, math.Sqrt(c.sq)) }

// learn adds a finished step.
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

// follow updates level, shape and spread by r, the ratio of measured to predicted seconds. A
// single outlier moves the level a little. Two consecutive ones in the same direction are taken
// for a change of the device, and the level follows at once.
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

// fold multiplies the level into the sums and resets it to 1.
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

// ridge is added to the diagonal of the sums, which is scaled to 1. Its first value is the
// smallest: cost that the steps cannot attribute to one feature then goes to the constant,
// which prompts do not change. So chunks may grow, and larger chunks show the real cost.
var ridge = [features]float64{1e-5, 2e-4, 2e-4, 2e-4, 5e-4}

// fit computes theta. While a coefficient is negative, it sets the most negative one to 0 and
// solves again.
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

// solve returns x of a·x = y with x[i] = 0 where out[i]. It scales the diagonal of a to 1, adds
// ridge and uses the Cholesky decomposition.
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
