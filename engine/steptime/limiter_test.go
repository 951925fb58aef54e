package steptime

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// machine simulates the step times of a device, in seconds.
type machine struct {
	step, decode, token, read float64
	flat                      float64 // least time of a step, without its reads
	noise                     float64 // relative standard deviation
	rare, hiccup              float64 // share of slow steps, and their factor
	slower                    float64 // factor from step turn on
	turn                      int
	rng                       *rand.Rand
}

// mean returns the time of a step without noise.
func (m *machine) mean(w Work, at int) float64 {
	t := m.step + m.decode*float64(w.Decode) + m.token*float64(w.Prompt)
	t = max(t, m.flat) + m.read*float64(w.Reads+w.PromptReads)
	if m.slower > 0 && at >= m.turn {
		t *= m.slower
	}
	return t
}

func (m *machine) run(w Work, at int) float64 {
	t := m.mean(w, at) * max(0.5, 1+m.noise*m.rng.NormFloat64())
	if m.rng.Float64() < m.rare {
		t *= m.hiccup
	}
	return t
}

// load is a number of decoding streams and prompts of one length that arrive meanwhile.
type load struct {
	rows, from, prompt int
	busy               float64 // share of prompts that arrive as soon as the previous one is computed
}

// outcome is the result of a run, without its warm-up.
type outcome struct {
	over   float64 // share of the steps that took longer than 1.1 times the target
	share  float64 // prompt throughput, as a share of that of the largest chunks within the target
	missed int     // number of reports by Missed
	far    int     // steps that took longer than 1.1 times the target
}

const steps, warmup = 3000, 64

func simulate(m *machine, l load, target float64) (o outcome) {
	m.rng = rand.New(rand.NewPCG(1, 2))
	p := New(target)
	contexts := make([]int, l.rows)
	for i := range contexts {
		contexts[i] = l.from + m.rng.IntN(1+l.from/2)
	}
	at, left, idle := 0, l.prompt, 0
	var tokens, seconds, best, bestSeconds float64
	for n := range steps {
		w := Work{}
		for i := range contexts {
			w = w.With(contexts[i], 1)
			if contexts[i]++; m.rng.IntN(200) == 0 {
				contexts[i] = l.from
			}
		}
		alone := w
		if idle > 0 {
			idle--
		} else {
			k := p.PrefillBudget(w, at, left)
			w = w.With(at, k)
			if at, left = at+k, left-k; left == 0 {
				at, left = 0, l.prompt
				if m.rng.Float64() > l.busy {
					idle = m.rng.IntN(50)
				}
			}
		}
		t := m.run(w, n)
		p.Learn(w, t)
		if p.Missed(alone) > 0 {
			o.missed++
		}
		if n < warmup {
			continue
		}
		if t > 1.1*target {
			o.far++
		}
		if w.Prompt >= Grain { // without the last, shorter chunks of prompts
			from := max(0, at-w.Prompt)
			k := Grain
			for ; m.mean(alone.With(from, k+Grain), n) <= target; k += Grain {
			}
			tokens, seconds = tokens+float64(w.Prompt), seconds+t
			best, bestSeconds = best+float64(k), bestSeconds+m.mean(alone.With(from, k), n)
		}
	}
	o.over = float64(o.far) / (steps - warmup)
	o.share = tokens / seconds / (best / bestSeconds)
	return o
}

// TestMeetsTarget: after a warm-up 99 of 100 steps take at most 1.1 times the target. Prompt
// throughput is nearly that of the largest chunks within the target, on all kinds of devices.
func TestMeetsTarget(t *testing.T) {
	cpu := machine{step: 8e-3, decode: 4e-4, token: 2e-4, read: 2e-8, noise: 0.02}
	gpu := machine{step: 1e-3, decode: 2e-6, token: 3e-5, read: 1e-10, flat: 12e-3, noise: 0.01}
	for _, c := range []struct {
		name   string
		m      machine
		l      load
		target float64
		share  float64 // least
	}{
		{"a CPU", cpu, load{4, 500, 2000, 0.9}, 30e-3, 0.93},
		{"a CPU, always busy", cpu, load{4, 500, 2000, 1}, 30e-3, 0.93},
		{"a CPU, many streams", cpu, load{16, 500, 300, 0.9}, 50e-3, 0.93},
		{"a CPU, no noise", machine{step: 8e-3, decode: 4e-4, token: 2e-4, read: 2e-8}, load{4, 500, 2000, 0.9}, 30e-3, 0.96},
		{"long contexts", machine{step: 20e-3, decode: 1e-3, token: 1e-3, read: 2e-7, noise: 0.02}, load{4, 3000, 16000, 0.9}, 100e-3, 0.92},
		{"noise of 5 %", machine{step: 8e-3, decode: 4e-4, token: 2e-4, read: 2e-8, noise: 0.05}, load{4, 500, 2000, 0.9}, 30e-3, 0.87},
		{"hiccups", machine{step: 8e-3, decode: 4e-4, token: 2e-4, read: 2e-8, noise: 0.02, rare: 0.005, hiccup: 6}, load{4, 500, 2000, 0.9}, 30e-3, 0.88},
		{"a GPU: flat, then steep", gpu, load{32, 1000, 8000, 0.9}, 25e-3, 0.93},
		{"a GPU: flat is within", gpu, load{32, 1000, 8000, 0.9}, 13e-3, 0.87},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := simulate(&c.m, c.l, c.target)
			t.Logf("%.2f %% over 1.1 targets, %.0f %% of the best throughput", 100*o.over, 100*o.share)
			if o.over > 0.01 || o.share < c.share || o.missed > 0 {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestFollowsDevice: when a device becomes three times slower or faster, predictions follow
// within a few steps.
func TestFollowsDevice(t *testing.T) {
	for _, slower := range []float64{3, 1. / 3} {
		t.Run(fmt.Sprintf("%.2f", slower), func(t *testing.T) {
			m := machine{step: 4e-3, decode: 2e-4, token: 4e-4, read: 2e-8, noise: 0.02, slower: slower, turn: steps / 2}
			o := simulate(&m, load{4, 500, 2000, 0.9}, 40e-3)
			t.Logf("%+v", o)
			if o.far > 2 || o.share < 0.8 {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestMissed: decoding alone that exceeds the target is reported once, and prompts still get
// Grain tokens a step.
func TestMissed(t *testing.T) {
	m := machine{step: 60e-3, decode: 5e-4, token: 1e-4, read: 1e-9, noise: 0.03}
	o := simulate(&m, load{4, 500, 2000, 0.9}, 50e-3)
	if o.missed != 1 {
		t.Errorf("reported %d times, want once", o.missed)
	}
	p := New(50e-3)
	w := Work{}.With(500, 1)
	for range 40 {
		p.Learn(w, 63e-3)
	}
	if n := p.PrefillBudget(w, 0, 2000); n != Grain {
		t.Errorf("a chunk of %d, want %d", n, Grain)
	}
	if s := p.Missed(w); s < 62e-3 || s > 64e-3 {
		t.Errorf("decode alone takes %g s, want 0.063", s)
	}
	if s := p.Missed(w); s != 0 {
		t.Errorf("reported again: %g s", s)
	}
	p.Retarget(80e-3)
	for range 40 {
		p.Learn(w, 63e-3)
	}
	if s := p.Missed(w); s != 0 {
		t.Errorf("with a target of 80 ms: %g s", s)
	}
}

// TestPrefillBudgetBounds: whatever was learned, a chunk of the first prompt is at least Grain
// or the whole prompt, a multiple of Grain otherwise, and at most 1.5 times the largest before.
func TestPrefillBudgetBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		p := New(rng.Float64() * 0.1)
		for range 100 {
			w := Work{StepsPerToken: rng.IntN(3)}
			for range rng.IntN(5) {
				w = w.With(rng.IntN(5000), 1)
			}
			most := p.most
			from, n := rng.IntN(5000), 1+rng.IntN(3000)
			k := p.PrefillBudget(w, from, n)
			switch {
			case k < min(n, Grain), k > n, k < n && k%Grain != 0, k > most+most/2+Grain:
				t.Fatalf("a chunk of %d of %d, after %d", k, n, most)
			}
			w = w.With(from, k)
			if more := p.PrefillBudget(w, 0, 100); more < 0 || more > 100 || more < 100 && more%Grain != 0 {
				t.Fatalf("%d of 100 more", more)
			}
			p.Learn(w, rng.ExpFloat64()*[]float64{1e-9, 1e-3, 10}[rng.IntN(3)])
		}
	}
}

// TestStepsPerToken: a stream that skips every other step waits for two, so chunks are halved.
func TestStepsPerToken(t *testing.T) {
	p := New(40e-3)
	decode := Work{}.With(100, 1)
	for n := range 200 {
		w := decode
		if n%3 > 0 {
			w = w.With(0, 16*(1+n%8))
		}
		p.Learn(w, 10e-3+1e-4*float64(w.Prompt))
	}
	one := p.PrefillBudget(decode, 0, 2000)
	decode.StepsPerToken = 2
	if two := p.PrefillBudget(decode, 0, 2000); one < 176 || one > 224 || two < 80 || two > 112 {
		t.Errorf("chunks of %d and %d, want about 200 (as far as was learned) and 100", one, two)
	}
}

// TestWork: Without undoes With.
func TestWork(t *testing.T) {
	w := Work{}.With(7, 1).With(4, 3)
	if want := (Work{Decode: 1, Reads: 8, Prompt: 3, PromptReads: 5 + 6 + 7}); w != want {
		t.Errorf("%+v, want %+v", w, want)
	}
	if w = w.Without(7, 1).Without(4, 3); w != (Work{}) {
		t.Errorf("%+v is left", w)
	}
}

// TestNoAllocation: Learn and PrefillBudget allocate nothing.
func TestNoAllocation(t *testing.T) {
	p := New(30e-3)
	w := Work{}.With(100, 1)
	if n := testing.AllocsPerRun(100, func() {
		k := p.PrefillBudget(w, 0, 2000)
		p.Learn(w.With(0, k), 1e-2+1e-4*float64(k))
	}); n != 0 {
		t.Errorf("%g allocations a step", n)
	}
}

func BenchmarkStep(b *testing.B) {
	p := New(30e-3)
	w := Work{}.With(100, 1)
	for b.Loop() {
		k := p.PrefillBudget(w, 0, 2000)
		p.Learn(w.With(0, k), 1e-2+1e-4*float64(k))
	}
}

// TestNothingIsFree: if longer reads happened in faster steps, the prediction still does not
// fall with longer reads.
func TestNothingIsFree(t *testing.T) {
	c := newCost()
	for i := range 200 {
		w := Work{Decode: 1 + i%4, Reads: int64(1000 * (1 + i%7))}
		c.learn(w, 20e-3-1e-3*float64(i%7))
	}
	few, many := c.predict(Work{Decode: 1, Reads: 1000}), c.predict(Work{Decode: 1, Reads: 100000})
	if few <= 0 || many < few {
		t.Errorf("1,000 reads take %v s, 100,000 take %v s", few, many)
	}
}
