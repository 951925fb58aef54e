package sample

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

var limits = Limits{Vocab: 100, Logprobs: 20, Bias: 4}

// TestValidateTexts checks the messages of the API reference, word for word.
func TestValidateTexts(t *testing.T) {
	for _, c := range []struct {
		param string
		edit  func(*Params)
		text  string
	}{
		{"presence_penalty", func(p *Params) { p.Presence = 2.5 }, "presence_penalty must be in [-2, 2], got 2.5."},
		{"frequency_penalty", func(p *Params) { p.Frequency = -3 }, "frequency_penalty must be in [-2, 2], got -3.0."},
		{"frequency_penalty", func(p *Params) { p.Frequency = math.NaN() }, "frequency_penalty must be in [-2, 2], got nan."},
		{"repetition_penalty", func(p *Params) { p.Repetition = 0 }, "repetition_penalty must be greater than zero, got 0.0."},
		{"temperature", func(p *Params) { p.Temperature = -1 }, "temperature must be non-negative, got -1.0."},
		{"temperature", func(p *Params) { p.Temperature = math.Inf(1) }, "temperature must be non-negative, got inf."},
		{"top_p", func(p *Params) { p.TopP = 0 }, "top_p must be in (0, 1], got 0.0."},
		{"top_p", func(p *Params) { p.TopP = 1.0000001 }, "top_p must be in (0, 1], got 1.0000001."},
		{"top_k", func(p *Params) { p.TopK = -2 }, "top_k must be 0 (disable), or at least 1, got -2."},
		{"min_p", func(p *Params) { p.MinP = 1e20 }, "min_p must be in [0, 1], got 1e+20."},
		{"min_p", func(p *Params) { p.MinP = -1e-5 }, "min_p must be in [0, 1], got -1e-05."},
		{"max_tokens", func(p *Params) { p.MaxTokens = 0 }, "max_tokens must be at least 1, got 0."},
		{"min_tokens", func(p *Params) { p.MinTokens = -1 }, "min_tokens must be greater than or equal to 0, got -1."},
		{"min_tokens", func(p *Params) { p.MinTokens = 17 }, "min_tokens must be less than or equal to max_tokens=16, got 17."},
		{"logprobs", func(p *Params) { p.Logprobs = 21 }, "Requested sample logprobs of 21, which is greater than max allowed: 20"},
		{"logprobs", func(p *Params) { p.Logprobs = -2 }, "`logprobs` must be a positive value."},
		{"prompt_logprobs", func(p *Params) { p.PromptLogprobs = 21 }, "Requested prompt logprobs of 21, which is greater than max allowed: 20"},
		{"logit_bias", func(p *Params) { p.LogitBias = []Bias{{Token: -1}, {Token: 4}, {Token: 100}, {Token: 7000}} },
			"token_id(s) [-1, 100, 7000] in logit_bias contain out-of-vocab token ids. Vocabulary size: 100"},
		{"logit_bias", func(p *Params) { p.LogitBias = []Bias{{Token: 1, Value: math.NaN()}} }, "logit_bias of token_id 1 must be a number, got nan."},
		{"logit_bias", func(p *Params) { p.LogitBias, p.MinTokens, p.EOS = make([]Bias, 3), 1, []int32{1, 2} },
			"logit_bias, bad_words and the stop ids that min_tokens holds back edit up to 5 logits, which is greater than max allowed: 4"},
		{"allowed_token_ids", func(p *Params) { p.AllowedTokenIDs = []int32{} }, "allowed_token_ids is not None and empty!"},
		{"allowed_token_ids", func(p *Params) { p.AllowedTokenIDs = []int32{3, -1} }, "allowed_token_ids contains out-of-vocab token id! Token ids: [-1]. Vocabulary size: 100"},
		{"bad_words", func(p *Params) { p.BadWords = [][]int32{{1, 100}} },
			"The model vocabulary size is 100, but the following tokens were specified as bad: [100]. All token id values should be integers satisfying: 0 <= token_id <= 99."},
		{"bad_words", func(p *Params) { p.BadWords = [][]int32{{}} }, "bad_words cannot contain an empty string."},
	} {
		p := Default()
		c.edit(&p)
		err := p.Validate(limits)
		var e *ParamError
		if !errors.As(err, &e) || e.Param != c.param || e.Text != c.text {
			t.Errorf("%s: got %v, want %s", c.param, err, c.text)
		}
	}
}

func TestValidateTakes(t *testing.T) {
	for name, edit := range map[string]func(*Params){
		"neutral": func(*Params) {},
		"edges": func(p *Params) {
			p.Presence, p.Frequency, p.TopK, p.MinP, p.MinTokens, p.Logprobs = 2, -2, -1, 1, 16, 20
		},
		"greedy":    func(p *Params) { p.Temperature = 0 },
		"huge":      func(p *Params) { p.Temperature, p.Repetition, p.TopK = 1e300, 1e-300, math.MaxInt },
		"all edits": func(p *Params) { p.LogitBias = make([]Bias, 4) },
	} {
		p := Default()
		edit(&p)
		if err := p.Validate(limits); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateForgetsForeignStopIDs(t *testing.T) {
	p := Default()
	stops := []int32{5, 100, -7}
	p.StopTokenIDs, p.EOS = stops, []int32{200, 6}
	if err := p.Validate(limits); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.StopTokenIDs, []int32{5, -1, -1}) || !slices.Equal(p.EOS, []int32{-1, 6}) {
		t.Errorf("got %v and %v", p.StopTokenIDs, p.EOS)
	}
	if stops[1] != 100 {
		t.Error("the caller's slice was changed")
	}
}

func TestValidateN(t *testing.T) {
	p := Default()
	for n, want := range map[int]string{0: "n must be at least 1, got 0.", -1: "n must be at least 1, got -1."} {
		if err := p.ValidateN(n); err == nil || err.Error() != want {
			t.Errorf("n=%d: %v", n, err)
		}
	}
	if err := p.ValidateN(3); err != nil {
		t.Error(err)
	}
	p.Temperature = 0
	if err := p.ValidateN(2); err == nil || err.Error() != "n must be 1 when using greedy sampling, got 2." {
		t.Error(err)
	}
	if err := p.ValidateN(1); err != nil {
		t.Error(err)
	}
}

func TestStopAt(t *testing.T) {
	p := Default()
	p.EOS, p.StopTokenIDs = []int32{1, 2}, []int32{3}
	for _, c := range []struct {
		ignore   bool
		min      int
		token    int32
		n        int
		want     Stop
		alsoStop int32
	}{
		{token: 1, n: 1, want: AtEOS},
		{token: 2, n: 1, want: AtToken},
		{token: 3, n: 1, want: AtToken},
		{token: 4, n: 1, want: GoOn},
		{token: 1, n: 2, min: 3, want: GoOn},
		{token: 1, n: 3, min: 3, want: AtEOS},
		{ignore: true, token: 1, n: 1, want: GoOn},
		{ignore: true, token: 2, n: 1, want: GoOn},
		{ignore: true, token: 3, n: 1, want: AtToken},
		{ignore: true, token: 1, n: 1, alsoStop: 1, want: AtToken},
	} {
		q := p
		q.IgnoreEOS, q.MinTokens = c.ignore, c.min
		if c.alsoStop > 0 {
			q.StopTokenIDs = []int32{c.alsoStop}
		}
		if got := q.StopAt(c.token, c.n); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func TestChoiceSeed(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(100) {
		for choice := range 100 {
			seen[ChoiceSeed(seed, choice)] = true
		}
	}
	if len(seen) != 10000 || ChoiceSeed(7, 0) != 7 {
		t.Errorf("%d seeds of 10000 differ", len(seen))
	}
}

func FuzzValidate(f *testing.F) {
	f.Add(1.0, 1.0, 0, 0.0, 1.0, 0.0, 0.0, 16, 0, int32(3), 2.0)
	f.Fuzz(func(t *testing.T, temp, topP float64, topK int, minP, rep, freq, pres float64, maxT, minT int, id int32, bias float64) {
		p := Default()
		p.Temperature, p.TopP, p.TopK, p.MinP = temp, topP, topK, minP
		p.Repetition, p.Frequency, p.Presence = rep, freq, pres
		p.MaxTokens, p.MinTokens = maxT, minT
		p.EOS, p.StopTokenIDs = []int32{id}, []int32{id, 5}
		p.LogitBias = []Bias{{id, bias}}
		l := Limits{Vocab: 100, Logprobs: 20, Bias: 8}
		if p.Validate(l) != nil {
			return
		}
		s := stepOf(2, 100, 8)
		p.Row(s, 1, At{Position: 9, Prompt: 9})
		row := s.Sampling[1]
		for _, v := range []float32{row.Temperature, row.TopP, row.MinP, row.Repetition, row.Frequency, row.Presence} {
			if v != v || math.IsInf(float64(v), 0) {
				t.Fatalf("row %+v", row)
			}
		}
		if row.TopK < 0 || row.TopP <= 0 || row.Repetition <= 0 {
			t.Fatalf("row %+v", row)
		}
		for _, e := range s.Bias[8:][:row.NumBias] {
			if e.Token < 0 || e.Token >= 100 || e.Value != e.Value {
				t.Fatalf("edit %+v", e)
			}
		}
	})
}

func TestListIsBounded(t *testing.T) {
	if got := list(make([]int32, 3)); got != "[0, 0, 0]" {
		t.Error(got)
	}
	if got := list(make([]int32, 1<<20)); len(got) > 3*maxListed+10 || !strings.HasSuffix(got, "0, ...]") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-10:])
	}
}
