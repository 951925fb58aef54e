package speed

import (
	"errors"
	"math"
	"testing"
)

// work returns samples of decoding and of prompts whose seconds are a function of the work.
func work(seconds func(Sample) float64) []Sample {
	var out []Sample
	add := func(s Sample) { s.Seconds = seconds(s); out = append(out, s) }
	for d := 1; d <= 64; d *= 2 {
		for _, context := range []int{32, 256, 1024} {
			add(Sample{Decode: d, Reads: int64(d * context)})
			for _, p := range []int{32, 256} {
				add(Sample{Decode: d, Reads: int64(d * context), Prompt: p, PromptReads: int64(p * p / 2)})
			}
		}
	}
	for p := 16; p <= 2048; p *= 2 {
		for _, from := range []int{0, 1024} {
			add(Sample{Prompt: p, PromptReads: int64(p*from + p*p/2)})
		}
	}
	return out
}

// TestFit finds the figures that samples were made with, and disturbed steps among them change little.
func TestFit(t *testing.T) {
	truth := func(s Sample) float64 {
		rows := float64(s.Decode + s.Prompt)
		return 2e-3 + max(0, rows-16)*50e-6 + 20e-6*float64(s.Decode) + 4e-9*float64(s.Reads) + 6e-9*float64(s.PromptReads)
	}
	clean := work(truth)
	m, err := Fit(clean)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range clean {
		if got := m.at(s); math.Abs(got/s.Seconds-1) > 0.02 {
			t.Errorf("%+v: fitted %g", s, got)
		}
	}
	rows := []Row{{From: 99, Count: 1}, {From: 0, Count: 300}}
	want := truth(Sample{Decode: 1, Reads: 100, Prompt: 300, PromptReads: 300 * 301 / 2})
	if got := m.Step(rows); math.Abs(got/want-1) > 0.02 {
		t.Errorf("a step between the samples: %g, want %g", got, want)
	}
	var disturbed []Sample
	for i, s := range clean {
		disturbed = append(disturbed, s, s, s)
		if i%5 == 0 {
			disturbed[len(disturbed)-1].Seconds *= 10
		}
	}
	again, err := Fit(disturbed)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := again.Step(rows), m.Step(rows); math.Abs(a/b-1) > 0.01 {
		t.Errorf("with disturbed steps %g, without %g", a, b)
	}
	if y := again.Ratios.Y; y[len(y)-1] < 5 || y[len(y)/2] < 0.95 || y[len(y)/2] > 1.05 {
		t.Errorf("ratios %v", y)
	}
}

// TestFitRefuses: too few steps, impossible ones, and files with impossible figures.
func TestFitRefuses(t *testing.T) {
	var few *TooFewStepsError
	if _, err := Fit(make([]Sample, 3)); !errors.As(err, &few) || few.Steps != 3 {
		t.Error(err)
	}
	bad := work(func(Sample) float64 { return 1 })
	bad[3].Seconds = 0
	if _, err := Fit(bad); err == nil {
		t.Error("a step without time is accepted")
	}
	m, err := Fit(work(func(Sample) float64 { return 1e-3 }))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Steps){
		"decode": func(m *Steps) { m.Decode = math.NaN() },
		"pairs":  func(m *Steps) { m.Pairs = -1 },
		"rows":   func(m *Steps) { m.Rows.X = nil },
		"ratios": func(m *Steps) { m.Ratios.Y[0] = 900 },
	} {
		c := *m
		c.Ratios.Y = append([]float64(nil), m.Ratios.Y...)
		change(&c)
		if c.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
