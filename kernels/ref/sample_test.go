package ref

import (
	"math"
	"slices"
	"testing"
)

var inf = float32(math.Inf(1))

// row returns neutral arguments with a copy of z.
func row(z ...float32) SampleArgs {
	n := len(z)
	return SampleArgs{
		Logits: slices.Clone(z), Repetition: 1, TopP: 1, Temperature: 1, Logprobs: true,
		Workspace: SampleWorkspace{Raw: make([]float32, n), Order: make([]int32, n), Counts: make([]int32, n)},
	}
}

// kept returns every token that some random number draws.
func kept(a SampleArgs) []int32 {
	var ids []int32
	z := slices.Clone(a.Logits)
	for i := range 1000 {
		copy(a.Logits, z)
		a.Uniform = float64(i) / 1000
		if id := Sample(a).Token; !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func ln(x float64) float32 { return float32(math.Log(x)) }

// TestDraw: random numbers select tokens by the intervals of the softmax in id order.
func TestDraw(t *testing.T) {
	for u, want := range map[float64]int32{0: 0, 0.0999: 0, 0.1001: 1, 0.2999: 1, 0.3001: 2, 0.9999999999: 2} {
		a := row(ln(1), ln(2), ln(7))
		a.Uniform = u
		got := Sample(a)
		if got.Token != want || got.Rank != 3-want || math.Abs(float64(got.Logprob-ln([]float64{0.1, 0.2, 0.7}[want]))) > 1e-6 {
			t.Errorf("u = %g: %+v, want token %d", u, got, want)
		}
	}
	a := row(0, 2*ln(2), 2*ln(3)) // at temperature 2: 1, 2, 3
	a.Temperature, a.Uniform = 2, 0.499
	if got := Sample(a); got.Token != 1 {
		t.Errorf("temperature 2: %+v", got)
	}
}

func TestGreedy(t *testing.T) {
	a := row(1, 5, 5, 2)
	a.Temperature = 9e-6
	a.TopIDs, a.TopProbs = make([]int32, 3), make([]float32, 3)
	if got := Sample(a); got.Token != 1 || got.Rank != 2 || !slices.Equal(a.TopIDs, []int32{1, 2, 3}) || a.TopProbs[0] != got.Logprob {
		t.Errorf("%+v, top %v %v", got, a.TopIDs, a.TopProbs)
	}
	// 0.001 counts as 0.01: a hundredth below, a logit keeps a share.
	a = row(0.01, 0)
	a.Temperature = 0.001
	if got := kept(a); !slices.Equal(got, []int32{0, 1}) {
		t.Errorf("temperature 0.001 keeps %v", got)
	}
}

func TestCuts(t *testing.T) {
	p := []float32{ln(0.4), ln(0.1), ln(0.3), ln(0.2)}
	for what, c := range map[string]struct {
		edit func(*SampleArgs)
		want []int32
	}{
		"nothing":       {func(*SampleArgs) {}, []int32{0, 1, 2, 3}},
		"min_p 0.6":     {func(a *SampleArgs) { a.MinP = 0.6 }, []int32{0, 2}},
		"min_p 0.3":     {func(a *SampleArgs) { a.MinP = 0.3 }, []int32{0, 2, 3}},
		"top_k 1":       {func(a *SampleArgs) { a.TopK = 1 }, []int32{0}},
		"top_k 3":       {func(a *SampleArgs) { a.TopK = 3 }, []int32{0, 2, 3}},
		"top_k 9":       {func(a *SampleArgs) { a.TopK = 9 }, []int32{0, 1, 2, 3}},
		"top_p 0":       {func(a *SampleArgs) { a.TopP = 0 }, []int32{0}},
		"top_p 0.39":    {func(a *SampleArgs) { a.TopP = 0.39 }, []int32{0}},
		"top_p 0.41":    {func(a *SampleArgs) { a.TopP = 0.41 }, []int32{0, 2}},
		"top_p 0.71":    {func(a *SampleArgs) { a.TopP = 0.71 }, []int32{0, 2, 3}},
		"top_k before":  {func(a *SampleArgs) { a.TopK, a.TopP = 2, 0.56 }, []int32{0}}, // 0.4 of 0.7 is enough
		"temperature":   {func(a *SampleArgs) { a.Temperature, a.MinP = 2, 0.6 }, []int32{0, 2, 3}},
		"allowed":       {func(a *SampleArgs) { a.Allowed = []uint32{0b1010} }, []int32{1, 3}},
		"grammar":       {func(a *SampleArgs) { a.Grammar, a.TopK = []uint32{0b1010}, 1 }, []int32{3}},
		"both masks":    {func(a *SampleArgs) { a.Grammar, a.Allowed = []uint32{0b1010}, []uint32{0b0110} }, []int32{1}},
		"bias forbids":  {func(a *SampleArgs) { a.Bias = []Bias{{0, -inf}, {2, -inf}} }, []int32{1, 3}},
		"bias lifts":    {func(a *SampleArgs) { a.Bias, a.TopK = []Bias{{1, 1}, {1, 1}}, 1 }, []int32{1}},
		"bias in order": {func(a *SampleArgs) { a.Bias, a.TopK = []Bias{{1, 1e30}, {1, -1e30}, {1, 3}}, 1 }, []int32{1}},
	} {
		a := row(p...)
		c.edit(&a)
		if got := kept(a); !slices.Equal(got, c.want) {
			t.Errorf("%s keeps %v, want %v", what, got, c.want)
		}
	}
	ties := row(1, 2, 2, 2, 0)
	ties.TopK = 2
	if got := kept(ties); !slices.Equal(got, []int32{1, 2, 3}) {
		t.Errorf("top_k 2 of three equals keeps %v", got)
	}
	ties.TopK, ties.TopP = 0, 0.3 // the lowest ids of equals are the better ones
	copy(ties.Logits, []float32{-9, 2, 2, 2, -9})
	if got := kept(ties); !slices.Equal(got, []int32{1}) {
		t.Errorf("top_p 0.3 of three equals keeps %v", got)
	}
}

// TestOrder: if two steps affect each other, their order decides.
func TestOrder(t *testing.T) {
	generated := []int32{0} // token 0 was generated
	for what, c := range map[string]struct {
		z    []float32
		edit func(*SampleArgs)
		want []int32
	}{
		"bias before repetition":        {[]float32{-1, 0}, func(a *SampleArgs) { a.Bias, a.Repetition = []Bias{{0, 3}}, 4 }, []int32{0}}, // (3-1)/4 > 0 > 3-1·4
		"repetition before frequency":   {[]float32{2, 0.6}, func(a *SampleArgs) { a.Repetition, a.Frequency = 2, 0.5 }, []int32{1}},      // 1-0.5 < 0.6 < (2-0.5)/2
		"repetition before presence":    {[]float32{2, 0.6}, func(a *SampleArgs) { a.Repetition, a.Presence = 2, 0.5 }, []int32{1}},
		"allowed before bias":           {[]float32{5, 0}, func(a *SampleArgs) { a.Allowed, a.Bias = []uint32{0b10}, []Bias{{0, 100}} }, []int32{1}},
		"grammar before bias":           {[]float32{5, 0}, func(a *SampleArgs) { a.Grammar, a.Bias = []uint32{0b10}, []Bias{{0, 100}} }, []int32{1}},
		"penalties before temperature":  {[]float32{3, 2.5}, func(a *SampleArgs) { a.Presence, a.Temperature = 1, 0 }, []int32{1}},
		"temperature before min_p":      {[]float32{ln(1), ln(4)}, func(a *SampleArgs) { a.Temperature, a.MinP = 2, 0.4 }, []int32{0, 1}}, // 1/2 ≥ 0.4 > 1/4
		"min_p before top_p":            {[]float32{ln(5), ln(3), ln(2)}, func(a *SampleArgs) { a.MinP, a.TopP = 0.5, 0.6 }, []int32{0}},  // 5/8 ≥ 0.6 > 5/10
		"top_k before top_p":            {[]float32{ln(5), ln(3), ln(2)}, func(a *SampleArgs) { a.TopK, a.TopP = 2, 0.6 }, []int32{0}},
		"penalties of prompt or output": {[]float32{4, 1}, func(a *SampleArgs) { a.Prompt, a.Frequency, a.Presence, a.Temperature = 1, 9, 9, 0 }, []int32{0}},
	} {
		a := row(c.z...)
		a.History = generated
		if c.edit(&a); what == "penalties before temperature" || len(c.want) == 1 && a.TopP == 1 {
			a.Temperature = 0
		}
		if got := kept(a); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// TestPenalties checks the edited logits after a greedy choice.
func TestPenalties(t *testing.T) {
	a := row(4, -4, 4, 4, 1)
	a.Temperature = 0
	a.History, a.Prompt = []int32{0, 1, 2, 2, 0, 2}, 3 // output: 2, 0, 2
	a.Repetition, a.Frequency, a.Presence = 2, 0.5, 0.25
	got := Sample(a)
	if want := []float32{4/2 - 0.5 - 0.25, -8, 4/2 - 1 - 0.25, 4, 1}; !slices.Equal(a.Logits, want) {
		t.Errorf("logits %v, want %v", a.Logits, want)
	}
	if got.Token != 3 || got.Rank != 3 {
		t.Errorf("%+v: token 3, and three raw logits are ≥ its own", got)
	}
	if !slices.Equal(a.Workspace.Counts, make([]int32, 5)) {
		t.Errorf("counts left: %v", a.Workspace.Counts)
	}
}

// TestRawLogprobs: raw logprobs are computed after the grammar and before all other steps.
func TestRawLogprobs(t *testing.T) {
	a := row(3, 3, 9, 0)
	a.Grammar, a.Bias, a.Temperature = []uint32{0b1011}, []Bias{{3, 100}}, 0.5
	got := Sample(a)
	want := -math.Log(1 + 2*math.Exp(3))
	if got.Token != 3 || got.Rank != 3 || math.Abs(float64(got.Logprob)-want) > 1e-6 {
		t.Errorf("%+v, want token 3, rank 3, logprob %v", got, want)
	}
	a = row(3, 3, 9, 0)
	a.UseTarget, a.Target, a.Bias = true, 2, []Bias{{2, -100}}
	if got := Sample(a); got.Token != 2 || got.Rank != 1 {
		t.Errorf("target 2: %+v", got)
	}
	a = row(3, 3, 9, -inf)
	a.UseTarget, a.Target = true, 3
	if got := Sample(a); got.Token != 3 || got.Rank != 4 || got.Logprob != -inf {
		t.Errorf("target without probability: %+v", got)
	}
}

func TestNoToken(t *testing.T) {
	nan := float32(math.NaN())
	for what, a := range map[string]SampleArgs{
		"NaN": row(1, nan, 2), "+Inf": row(1, inf), "all −Inf": row(-inf, -inf),
		"a grammar that allows nothing": func() SampleArgs { a := row(1, 2); a.Grammar = []uint32{0}; return a }(),
		"a grammar that allows −Inf":    func() SampleArgs { a := row(1, -inf); a.Grammar = []uint32{2}; return a }(),
		"masks without common token": func() SampleArgs {
			a := row(1, 2)
			a.Grammar, a.Allowed = []uint32{1}, []uint32{2}
			return a
		}(),
		"everything forbidden": func() SampleArgs { a := row(1, 2); a.Bias = []Bias{{0, -inf}, {1, -inf}}; return a }(),
		"an overflow":          func() SampleArgs { a := row(math.MaxFloat32, 2); a.Bias = []Bias{{0, math.MaxFloat32}}; return a }(),
	} {
		if got := Sample(a); got != (Sampled{Token: -1}) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	a := row(-math.MaxFloat32, math.MaxFloat32)
	if got := Sample(a); got.Token != 1 {
		t.Errorf("the widest finite row: %+v", got)
	}
}
