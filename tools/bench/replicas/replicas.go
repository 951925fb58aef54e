// Package replicas finds how many replicas of an engine a workload needs to meet a latency target. It simulates engines
// on one clock, each with its own scheduler and pages, behind a router. It must not read a clock or a random source of
// the system: equal input gives equal figures. Start reading at Find.
package replicas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"vapp.dev/engine"
	"vapp.dev/engine/speed"
	"vapp.dev/tools/bench/report"
	"vapp.dev/tools/bench/workload"
)

// Workload are requests and when each is sent, in seconds, ascending.
type Workload struct {
	Requests []workload.Request
	Times    []float64
}

// Target is the latency to meet: a percentile of each metric, in seconds; 0: not limited.
type Target struct {
	Percentile     float64
	TTFT, ITL, E2E float64
}

// Setup is what is simulated.
type Setup struct {
	Engine  func(engine.StepTimer) (*engine.Simulation, error) // returns an idle engine
	Timer   engine.StepTimer
	Ratios  speed.Curve // by quantile, how much single steps differ from Timer; empty: they do not
	Seed    int64       // of Ratios
	Routing string
	Target  Target
	Max     int // replicas at most
}

// Outcome is what a number of replicas does.
type Outcome struct {
	Replicas int     `json:"replicas"`
	TTFT     float64 `json:"ttft_seconds"` // these three: the percentile of the target
	ITL      float64 `json:"itl_seconds"`
	E2E      float64 `json:"e2e_seconds"`
	Busy     float64 `json:"busy"` // share of the time in which steps run, 0 to 1, the mean of the replicas
	Tokens   float64 `json:"output_tokens_per_second"`
	Most     float64 `json:"largest_share"` // of the requests that one replica got
	Meets    bool    `json:"meets_target"`
}

// Result are the simulated numbers of replicas, ascending. Need is the smallest that meets the target; 0: none up to Max does.
type Result struct {
	Need     int       `json:"replicas"`
	Outcomes []Outcome `json:"simulated"`
}

// Find doubles the number of replicas until the target is met, and then halves the interval: one replica fewer than
// Need was simulated and misses it.
func Find(w Workload, s Setup) (Result, error) {
	var r Result
	meets := func(n int) (bool, error) {
		o, err := Simulate(w, s, n)
		if err == nil {
			r.Outcomes = append(r.Outcomes, o)
		}
		return o.Meets, err
	}
	low, high := 0, 1 // low misses the target
	for {
		ok, err := meets(high)
		if err != nil {
			return r, err
		}
		if ok {
			break
		}
		if low = high; high == s.Max {
			return r, nil
		}
		high = min(2*high, s.Max)
	}
	for high-low > 1 {
		n := (low + high) / 2
		ok, err := meets(n)
		if err != nil {
			return r, err
		}
		if ok {
			high = n
		} else {
			low = n
		}
	}
	slices.SortFunc(r.Outcomes, func(a, b Outcome) int { return a.Replicas - b.Replicas })
	r.Need = high
	return r, nil
}

// Simulate runs the workload on n replicas.
func Simulate(w Workload, s Setup, n int) (Outcome, error) {
	out := Outcome{Replicas: n}
	group := make([]*engine.Simulation, n)
	for i := range group {
		var err error
		timer := s.Timer
		if len(s.Ratios.X) > 0 {
			timer = &varied{s.Timer, s.Ratios, rand.New(rand.NewPCG(uint64(s.Seed), uint64(i)))}
		}
		if group[i], err = s.Engine(timer); err != nil {
			return out, err
		}
	}
	route := &router{name: s.Routing}
	shares := make([]int, n)
	var courses []*engine.Course
	for i, q := range w.Requests {
		for _, g := range group {
			if err := g.Advance(w.Times[i]); err != nil {
				return out, err
			}
		}
		to := route.pick(group, q.IDs)
		c, err := group[to].Submit(w.Times[i], q.IDs, q.Output)
		if err != nil {
			return out, err
		}
		shares[to]++
		courses = append(courses, c)
	}
	for _, g := range group {
		if err := g.Advance(math.Inf(1)); err != nil {
			return out, err
		}
	}
	out.measure(courses, s.Target)
	for i, g := range group {
		out.Busy += g.Busy() / float64(n)
		out.Most = max(out.Most, float64(shares[i])/float64(len(courses)))
	}
	if span := spanOf(courses); span > 0 {
		out.Busy, out.Tokens = out.Busy/span, tokensOf(courses)/span
	}
	return out, nil
}

// measure sets the latencies, as the client of vapp bench serve counts them.
func (o *Outcome) measure(courses []*engine.Course, t Target) {
	var first, between, whole []float64
	for _, c := range courses {
		first = append(first, c.Tokens[0]-c.Arrival)
		whole = append(whole, c.Tokens[len(c.Tokens)-1]-c.Arrival)
		for i, at := range c.Tokens[1:] {
			between = append(between, at-c.Tokens[i])
		}
	}
	o.TTFT, o.ITL, o.E2E = report.Percentile(first, t.Percentile), report.Percentile(between, t.Percentile), report.Percentile(whole, t.Percentile)
	within := func(x, most float64) bool { return most == 0 || x <= most }
	o.Meets = within(o.TTFT, t.TTFT) && within(o.ITL, t.ITL) && within(o.E2E, t.E2E)
}

// spanOf returns the seconds from the first arrival to the last token.
func spanOf(courses []*engine.Course) float64 {
	last := 0.0
	for _, c := range courses {
		last = max(last, c.Tokens[len(c.Tokens)-1])
	}
	return last - courses[0].Arrival
}

func tokensOf(courses []*engine.Course) float64 {
	n := 0
	for _, c := range courses {
		n += len(c.Tokens)
	}
	return float64(n)
}

// varied is a StepTimer whose times differ by chance as measured ones do.
type varied struct {
	engine.StepTimer
	ratios speed.Curve
	chance *rand.Rand
}

// Step implements engine.StepTimer.
func (v *varied) Step(rows []speed.Row) float64 {
	return v.StepTimer.Step(rows) * v.ratios.Held(v.chance.Float64())
}

// Routings lists the names of the ways in which a router picks a replica.
var Routings = []string{"round-robin", "least-requests", "prefix"}

// CheckRouting returns an error for a name that is not in Routings.
func CheckRouting(name string) error {
	if slices.Contains(Routings, name) {
		return nil
	}
	return fmt.Errorf("routing %q: there are round-robin, least-requests and prefix", name)
}

// router picks the replica of a request from the state of all, which it knows without delay.
type router struct {
	name string
	next int
}

// pick returns the index of a replica. "prefix" scores as the endpoint picker of the Gateway API Inference Extension
// does by default: the share of the prompt that is cached three times, free places in the queue and in the KV cache twice.
func (r *router) pick(group []*engine.Simulation, prompt []int32) int {
	r.next++
	if r.name == "round-robin" {
		return (r.next - 1) % len(group)
	}
	counts, most := make([]int, len(group)), 0
	for i, g := range group {
		running, waiting := g.Counts()
		counts[i] = waiting
		if r.name == "least-requests" {
			counts[i] += running
		}
		most = max(most, counts[i])
	}
	best, score := 0, math.Inf(-1)
	for k := range group {
		i := (r.next - 1 + k) % len(group) // equal ones take turns
		x := -float64(counts[i])
		if r.name == "prefix" {
			x = 3*float64(group[i].Cached(prompt))/float64(len(prompt)) + 2*(1-group[i].KVUsed()) + 2*(1-float64(counts[i])/float64(max(1, most)))
		}
		if x > score {
			best, score = i, x
		}
	}
	return best
}
