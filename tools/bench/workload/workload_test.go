package workload

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// letters is a tokenizer with a token for each byte and one for "ab", so that the text of random
// tokens encodes to fewer tokens.
type letters struct{ added int }

const pair = 26

func (letters) Encode(_ context.Context, text string) ([]int32, error) {
	var out []int32
	for i := 0; i < len(text); i++ {
		if strings.HasPrefix(text[i:], "ab") {
			out, i = append(out, pair), i+1
			continue
		}
		out = append(out, int32(text[i]-'a'))
	}
	return out, nil
}

func (letters) Decode(_ context.Context, ids []int32) (string, error) {
	var b strings.Builder
	for _, id := range ids {
		if id == pair {
			b.WriteString("ab")
		} else {
			b.WriteByte('a' + byte(id))
		}
	}
	return b.String(), nil
}

// Vocabulary excludes z, which is special.
func (l letters) Vocabulary(context.Context) (Vocabulary, error) {
	v := Vocabulary{Size: 27, Added: l.added}
	for id := range int32(27) {
		if id != 25 {
			v.Allowed = append(v.Allowed, id)
		}
	}
	return v, nil
}

func maker(n int, seed int64) Maker { return Maker{Count: n, Seed: seed, Tokenizer: letters{}} }

// TestRandom checks that lengths are exact and within their range, that special tokens do not
// occur, that equal seeds give equal prompts and different seeds different ones.
func TestRandom(t *testing.T) {
	o := Random{Input: 40, Output: 10, Range: 0.25}
	got, err := maker(200, 7).Random(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	in, out := map[int]bool{}, map[int]bool{}
	for _, q := range got {
		ids, _ := letters{}.Encode(t.Context(), q.Prompt)
		if len(ids) != q.Tokens || !slices.Equal(ids, q.IDs) || q.Tokens < 30 || q.Tokens > 50 || q.Output < 7 || q.Output > 13 || strings.Contains(q.Prompt, "z") {
			t.Fatalf("%+v", q)
		}
		in[q.Tokens], out[q.Output] = true, true
	}
	if len(in) < 15 || len(out) != 7 {
		t.Errorf("%d input and %d output lengths", len(in), len(out))
	}
	again, _ := maker(200, 7).Random(t.Context(), o)
	other, _ := maker(200, 8).Random(t.Context(), o)
	if !cmp.Equal(got, again) || cmp.Equal(got, other) {
		t.Error("the seed does not decide the prompts")
	}
}

// TestRandomSequence checks that token i of prompt j follows token i-1 in the vocabulary.
func TestRandomSequence(t *testing.T) {
	got, err := maker(50, 1).Random(t.Context(), Random{Input: 5, Output: 1})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := letters{}.Vocabulary(t.Context())
	for _, q := range got {
		if strings.Contains(q.Prompt, "ab") {
			continue // encodes to other tokens than were drawn
		}
		for i := 1; i < len(q.IDs); i++ {
			a, b := slices.Index(v.Allowed, q.IDs[i-1]), slices.Index(v.Allowed, q.IDs[i])
			if b != (a+1)%len(v.Allowed) {
				t.Fatalf("%v", q.IDs)
			}
		}
	}
}

// TestRandomPrefix checks that all prompts share exactly the prefix, and that tokens added by a
// server count as input.
func TestRandomPrefix(t *testing.T) {
	m := maker(20, 3)
	m.Tokenizer = letters{added: 2}
	got, err := m.Random(t.Context(), Random{Input: 12, Output: 1, Prefix: 6})
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, q := range got {
		if q.Tokens != 16 || !slices.Equal(q.IDs[:5], got[0].IDs[:5]) { // the sixth token may merge with the next one
			t.Fatalf("%+v", q)
		}
		own[q.Prompt] = true
	}
	if len(own) < 10 {
		t.Errorf("%d different prompts of 20", len(own))
	}
}

func TestRefusals(t *testing.T) {
	ctx, m := t.Context(), maker(3, 0)
	for want, err := range map[string]error{
		"range ratio 1":      second(m.Random(ctx, Random{Input: 5, Output: 1, Range: 1})),
		"input length 0":     second(m.Random(ctx, Random{Output: 1})),
		"output length 0":    second(m.Random(ctx, Random{Input: 1})),
		"prefix length -1":   second(m.Random(ctx, Random{Input: 1, Output: 1, Prefix: -1})),
		"4 prefixes for 3":   second(m.Prefix(ctx, Prefix{Prefix: 1, Suffix: 1, Output: 1, Prefixes: 4})),
		"no prompt of it":    second(m.ShareGPT(ctx, []Turn{{"abc", "x"}}, 0)),
		"the question alone": second(m.Sonnet(ctx, Sonnet{Input: 3, Output: 1}, "")),
		"has no lines":       second(m.Sonnet(ctx, Sonnet{Input: 300, Output: 1}, " \n")),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func second(_ []Request, err error) error { return err }

// TestShareGPT checks that entries of one turn, and too short and too long ones, are dropped; that
// the output is the answer's length or the forced one; and that entries are repeated.
func TestShareGPT(t *testing.T) {
	long := strings.Repeat("c", 1025)
	turns, err := Conversations(strings.NewReader(`[
		{"conversations":[{"from":"human","value":"only one"}]},
		{"conversations":[{"value":"cdef"},{"value":"cdefg"}],"id":"x"},
		{"conversations":[{"value":"cde"},{"value":"cdefg"}]},
		{"conversations":[{"value":"` + long + `"},{"value":"cdefg"}]},
		{"conversations":[{"value":"mnop"},{"value":"` + long + long + `"}]},
		{"conversations":[{"value":"qrst"},{"value":"c"}]}]`))
	if err != nil || len(turns) != 5 {
		t.Fatalf("%d turns, %v", len(turns), err)
	}
	got, err := maker(3, 0).ShareGPT(t.Context(), turns, 0)
	if err != nil || len(got) != 3 || got[0].Prompt != "cdef" || got[0].Output != 5 || got[2].Prompt != "cdef" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = maker(3, 0).ShareGPT(t.Context(), turns, 9); err != nil || len(got) != 3 || got[0].Output != 9 {
		t.Errorf("%+v, %v", got, err)
	}
	m := maker(9, 0)
	m.NoOversample = true
	if got, err = m.ShareGPT(t.Context(), turns, 9); err != nil || len(got) != 3 {
		t.Errorf("%d, %v", len(got), err)
	}
}

// TestCustom checks output lengths of lines, of the default, and of the override.
func TestCustom(t *testing.T) {
	lines, err := Lines(strings.NewReader("{\"prompt\":\"cde\",\"output_tokens\":7}\n\n{\"prompt\":\"fg\",\"extra\":1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := maker(3, 0).Custom(t.Context(), lines, 0, 5, true)
	want := []Request{
		{Prompt: "cde", Tokens: 3, Output: 7, IDs: []int32{2, 3, 4}}, {Prompt: "fg", Tokens: 2, Output: 5, IDs: []int32{5, 6}},
		{Prompt: "cde", Tokens: 3, Output: 7, IDs: []int32{2, 3, 4}},
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Error(d, err)
	}
	if got, err = maker(1, 0).Custom(t.Context(), lines, 2, 5, false); err != nil || len(got) != 1 || got[0].Output != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"{\"prompt\":\"a\"}\n{": "line 2: ", "{\"text\":\"a\"}": "line 1: no prompt", "\n": "no line has a prompt",
		"{\"prompt\":\"a\",\"output_tokens\":0}": "line 1: output_tokens 0",
	} {
		if _, err := Lines(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"{}": "JSON array", "": "JSON array", "[{},]": "entry 2: ", "[{}": "does not end", "[]": "no entry", `[{"conversations":[{"value":1}]}]`: "entry 1: ",
	} {
		if _, err := Conversations(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestSonnet checks that prompts are at most their length, close to it, and share their prefix.
func TestSonnet(t *testing.T) {
	got, err := maker(30, 2).Sonnet(t.Context(), Sonnet{Input: 2000, Output: 9, Prefix: 600}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range got {
		if q.Tokens > 2000 || q.Tokens < 1800 || q.Tokens != len(q.IDs) || q.Output != 9 || q.Prompt[:500] != got[0].Prompt[:500] {
			t.Fatalf("%d tokens, %d asked for, %.90q", q.Tokens, q.Output, q.Prompt)
		}
	}
	if got[0].Prompt == got[1].Prompt {
		t.Error("two prompts are the same")
	}
}

// TestPrefix checks the number of prefixes and their equal use.
func TestPrefix(t *testing.T) {
	got, err := maker(40, 2).Prefix(t.Context(), Prefix{Prefix: 20, Suffix: 10, Output: 3, Prefixes: 4})
	if err != nil {
		t.Fatal(err)
	}
	heads := map[string]int{}
	for _, q := range got {
		heads[q.Prompt[:15]]++
		if q.Tokens != 30 || q.Output != 3 {
			t.Errorf("%+v", q)
		}
	}
	for h, n := range heads {
		if n != 10 || len(heads) != 4 {
			t.Errorf("%s: %d of %d beginnings", h, n, len(heads))
		}
	}
}

// TestArrivals checks that times ascend, that the last is n/rate, and that gaps have the mean and
// variance of their gamma distribution (variance: mean squared / burstiness).
func TestArrivals(t *testing.T) {
	const n = 40_000
	for _, burst := range []float64{0.25, 0.5, 1, 4, 100} {
		times := Arrivals{Rate: 20, Burstiness: burst}.Times(n, 5)
		if !slices.IsSorted(times) || math.Abs(times[n-1]-n/20) > 1e-9*n {
			t.Errorf("burstiness %v: the last of %d at %v", burst, n, times[n-1])
		}
		last, square := 0.0, 0.0
		for _, x := range times {
			d := (x-last)*20 - 1
			square, last = square+d*d, x
		}
		// Standard error of the estimate: the kurtosis of a gamma variable is 3+6/shape.
		if v, want := square/n, 1/burst; math.Abs(v-want) > 5*want*math.Sqrt((2+6/burst)/n) {
			t.Errorf("burstiness %v: variance %v, want %v", burst, v, want)
		}
	}
	a := Arrivals{Rate: 20, Burstiness: 1}
	if !slices.Equal(a.Times(9, 1), a.Times(9, 1)) || slices.Equal(a.Times(9, 1), a.Times(9, 2)) {
		t.Error("the seed does not decide the times")
	}
	if x := (Arrivals{Rate: math.Inf(1), Burstiness: 1}).Times(3, 0); !slices.Equal(x, []float64{0, 0, 0}) {
		t.Error(x)
	}
}

// TestRamp checks that gaps shrink as the rate grows; the expected total is the sum of 1/rate.
func TestRamp(t *testing.T) {
	const n = 20_000
	for _, a := range []Arrivals{{RampUp: "linear", Start: 1, End: 9}, {RampUp: "exponential", Start: 1, End: 9}} {
		a.Rate, a.Burstiness = math.Inf(1), 50
		want := 0.0
		for i := range n {
			want += 1 / a.rate(i, n)
		}
		if got := a.Times(n, 3)[n-1]; math.Abs(got/want-1) > 0.01 {
			t.Errorf("%s: %v, want about %v", a.RampUp, got, want)
		}
	}
	for _, a := range []Arrivals{
		{Rate: 0, Burstiness: 1}, {Rate: math.NaN(), Burstiness: 1}, {Rate: 1}, {Rate: 1, Burstiness: math.Inf(1)}, {Rate: 1, Burstiness: 1, RampUp: "linear", End: 2},
		{Rate: math.Inf(1), Burstiness: 1, RampUp: "up", End: 2}, {Rate: math.Inf(1), Burstiness: 1, RampUp: "exponential", End: 2},
		{Rate: math.Inf(1), Burstiness: 1, RampUp: "linear", Start: 3, End: 2},
	} {
		if a.Check() == nil {
			t.Errorf("%+v was taken", a)
		}
	}
}

// FuzzDatasets checks that no file makes the readers panic, and that accepted entries are usable.
func FuzzDatasets(f *testing.F) {
	f.Add([]byte(`[{"conversations":[{"value":"a"},{"value":"b"}]}]`))
	f.Add([]byte("{\"prompt\":\"a\",\"output_tokens\":3}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if turns, err := Conversations(strings.NewReader(string(text))); err == nil && len(turns) == 0 {
			t.Fatal("no turns and no error")
		}
		lines, err := Lines(strings.NewReader(string(text)))
		if err == nil && len(lines) == 0 {
			t.Fatal("no lines and no error")
		}
		for _, l := range lines {
			if l.Prompt == "" || l.Output < 0 {
				t.Fatalf("%+v", l)
			}
		}
	})
}
