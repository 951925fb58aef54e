package replicas

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
	"vapp.dev/engine/sched"
	"vapp.dev/engine/speed"
	"vapp.dev/tools/bench/workload"
)

// constant is a StepTimer whose steps all take the same time.
type constant float64

func (c constant) Step([]speed.Row) float64 { return float64(c) }

// simulator returns a function that makes engines of a toy model, which compute nothing.
func simulator(t *testing.T, change func(*engine.Options)) func(engine.StepTimer) (*engine.Simulation, error) {
	t.Helper()
	m, err := engine.Inspect(engine.Source{Path: "../../../tests/bench/speed/llama", Name: "llama", Format: "dummy"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	o := engine.Options{MaxModelLen: 4096, MaxNumSeqs: 16, MaxNumBatchedTokens: 2048, BlockSize: 16, KVFormat: m.Dtype, KVBytes: 1 << 30, ChunkedPrefill: true}
	change(&o)
	a, err := engine.NewAccount(o, m, cpu.Opener{}, backend.Facts{Backend: "cpu", Device: "CPU", Cores: 2, Variants: []string{"generic"}})
	if err != nil {
		t.Fatal(err)
	}
	return func(timer engine.StepTimer) (*engine.Simulation, error) { return engine.NewSimulation(o, a, timer) }
}

// random returns n requests of that many tokens, at a rate.
func random(t *testing.T, n, prompt, output int, rate float64) Workload {
	t.Helper()
	m := workload.Maker{Count: n, Seed: 1, Tokenizer: IDs{Vocab: 1000}}
	q, err := m.Random(context.Background(), workload.Random{Input: prompt, Output: output})
	if err != nil {
		t.Fatal(err)
	}
	return Workload{q, workload.Arrivals{Rate: rate, Burstiness: 1}.Times(n, 1)}
}

// TestQueue compares one replica that serves one request after the other, each in one step of the same time, with the
// queue M/D/1: the mean time until the token is D + ρD/2(1−ρ). Two replicas that take turns are two queues with
// gaps of an Erlang distribution, which wait less.
func TestQueue(t *testing.T) {
	const d, n = 0.010, 40_000
	e := simulator(t, func(o *engine.Options) { o.MaxNumSeqs = 1 })
	for _, load := range []float64{0.3, 0.6, 0.8} {
		w := random(t, n, 8, 1, load/d)
		s := Setup{Engine: e, Timer: constant(d), Routing: "round-robin", Target: Target{Percentile: 50}}
		sum := 0.0
		g, err := e(s.Timer)
		if err != nil {
			t.Fatal(err)
		}
		var courses []*engine.Course
		for i, q := range w.Requests {
			c, err := g.Submit(w.Times[i], q.IDs, q.Output)
			if err != nil {
				t.Fatal(err)
			}
			courses = append(courses, c)
		}
		if err := g.Advance(math.Inf(1)); err != nil {
			t.Fatal(err)
		}
		for _, c := range courses {
			sum += (c.Tokens[0] - c.Arrival) / n
		}
		if want := d + load*d/(2*(1-load)); math.Abs(sum/want-1) > 0.05 {
			t.Errorf("load %g: mean %g s, M/D/1 has %g", load, sum, want)
		}
		one, err := Simulate(w, s, 1)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(one.Busy-load) > 0.02 {
			t.Errorf("load %g: busy %g", load, one.Busy)
		}
		two, err := Simulate(w, s, 2)
		if err != nil {
			t.Fatal(err)
		}
		if two.TTFT > one.TTFT || math.Abs(two.Busy-load/2) > 0.02 || two.Most != 0.5 {
			t.Errorf("load %g: one %+v, two %+v", load, one, two)
		}
		again, err := Simulate(w, s, 2)
		if err != nil || !reflect.DeepEqual(again, two) {
			t.Errorf("again %+v, %v", again, err)
		}
	}
}

// TestBatch: requests that come at once share the steps, and with overlap a request waits for the step that was
// scheduled before it came.
func TestBatch(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		e := simulator(t, func(o *engine.Options) { o.Overlap = overlap })
		g, err := e(constant(1))
		if err != nil {
			t.Fatal(err)
		}
		submit := func(at float64, output int) *engine.Course {
			c, err := g.Submit(at, make([]int32, 20), output)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a, b := submit(0, 4), submit(0, 2)
		late := submit(0.5, 1)
		if err := g.Advance(math.Inf(1)); err != nil {
			t.Fatal(err)
		}
		want := []float64{2}
		if overlap { // the step from 1 to 2 was scheduled at 0
			want = []float64{3}
		}
		if !reflect.DeepEqual(a.Tokens, []float64{1, 2, 3, 4}) || !reflect.DeepEqual(b.Tokens, []float64{1, 2}) || !reflect.DeepEqual(late.Tokens, want) {
			t.Errorf("overlap %t: %v, %v, %v", overlap, a.Tokens, b.Tokens, late.Tokens)
		}
	}
}

// TestFind: the number found meets the target, one fewer was simulated and does not, and a target below one step is
// met by none.
func TestFind(t *testing.T) {
	w := random(t, 400, 64, 8, 100)
	s := Setup{Engine: simulator(t, func(*engine.Options) {}), Timer: constant(0.05), Routing: "least-requests", Target: Target{Percentile: 95, TTFT: 0.120}, Max: 16}
	r, err := Find(w, s)
	if err != nil {
		t.Fatal(err)
	}
	met := map[int]bool{}
	for _, o := range r.Outcomes {
		met[o.Replicas] = o.Meets
	}
	before, simulated := met[r.Need-1]
	if r.Need < 2 || !met[r.Need] || before || !simulated {
		t.Errorf("%+v", r)
	}
	s.Target.TTFT = 0.04
	if r, err := Find(w, s); err != nil || r.Need != 0 || r.Outcomes[len(r.Outcomes)-1].Replicas != 16 {
		t.Errorf("%+v, %v", r, err)
	}
	var never *sched.NeverFitsError
	if _, err := Find(random(t, 4, 5000, 8, 100), s); !errors.As(err, &never) {
		t.Error(err)
	}
}

// byTokens is a StepTimer whose time grows with the tokens of a step.
type byTokens float64

func (b byTokens) Step(rows []speed.Row) float64 {
	n := 0
	for _, r := range rows {
		n += r.Count
	}
	return float64(b) * float64(n)
}

// TestRouting: with prefixes, the router that knows them computes fewer tokens than one that does not.
func TestRouting(t *testing.T) {
	m := workload.Maker{Count: 200, Seed: 1, Tokenizer: IDs{Vocab: 1000}}
	q, err := m.Prefix(context.Background(), workload.Prefix{Prefix: 512, Suffix: 16, Output: 4, Prefixes: 8})
	if err != nil {
		t.Fatal(err)
	}
	w := Workload{q, workload.Arrivals{Rate: 2, Burstiness: 1}.Times(200, 1)}
	s := Setup{Engine: simulator(t, func(o *engine.Options) { o.PrefixCaching = true }), Timer: byTokens(1e-4), Target: Target{Percentile: 95}}
	busy := map[string]float64{}
	for _, s.Routing = range Routings {
		o, err := Simulate(w, s, 4)
		if err != nil {
			t.Fatal(err)
		}
		busy[s.Routing] = o.Busy
	}
	if busy["prefix"] > 0.7*busy["round-robin"] {
		t.Errorf("%v", busy)
	}
	if CheckRouting("prefix") != nil || CheckRouting("random") == nil {
		t.Error("names of routing")
	}
}

// TestVaried: steps vary by the measured quantiles, equally for equal seeds.
func TestVaried(t *testing.T) {
	w := random(t, 200, 64, 8, 5)
	s := Setup{Engine: simulator(t, func(*engine.Options) {}), Timer: constant(0.01), Ratios: speed.Curve{X: []float64{0, 0.5, 1}, Y: []float64{1, 1, 3}}, Routing: "round-robin", Target: Target{Percentile: 95}}
	a, err := Simulate(w, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Simulate(w, s, 1); err != nil || !reflect.DeepEqual(a, b) || a.ITL < 0.02 || a.ITL > 0.03 {
		t.Errorf("%+v, %+v, %v", a, b, err)
	}
}

// TestParseTarget: limits in ms, and what is refused in one line.
func TestParseTarget(t *testing.T) {
	if got, err := ParseTarget("ttft:500,itl:50.5", 95); err != nil || got != (Target{Percentile: 95, TTFT: 0.5, ITL: 0.0505}) || got.String() != "TTFT ≤ 500 ms, ITL ≤ 50.5 ms" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "ttft", "ttft:", "ttft:0", "ttft:-1", "ttft:nan", "ttft:5s", "tpot:5", "itl:5,itl:6", "ttft:1e99"} {
		var e *TargetError
		if _, err := ParseTarget(bad, 95); !errors.As(err, &e) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
