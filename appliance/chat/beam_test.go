package chat_test

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/chattest"
	"vapp.dev/engine"
)

// oracle is an engine whose logprobs are a function of the whole text so far.
type oracle struct {
	seed  uint64
	words []int32 // its vocabulary, EOS last
	asked atomic.Int64
	fail  int64 // the request that fails, counted from 1
}

func (o *oracle) logprobs(text []int32) []engine.TopLogprob {
	h := fnv.New64a()
	for _, id := range text {
		h.Write([]byte{byte(id), byte(id >> 8)})
	}
	r := rand.New(rand.NewPCG(o.seed, h.Sum64()))
	out, total := make([]engine.TopLogprob, len(o.words)), 0.0
	p := make([]float64, len(o.words))
	for i := range p {
		p[i] = r.Float64() + 0.01
		total += p[i]
	}
	for i, id := range o.words {
		out[i] = engine.TopLogprob{Token: id, Logprob: float32(math.Log(p[i] / total))}
	}
	slices.SortFunc(out, func(a, b engine.TopLogprob) int { return cmp.Compare(b.Logprob, a.Logprob) })
	return out
}

func (o *oracle) Submit(_ context.Context, r engine.Request) ([]*engine.Stream, error) {
	n := o.asked.Add(1)
	if o.fail == n {
		return nil, engine.ErrOverloaded
	}
	st, push := engine.NewStream(r.ID, func() {})
	top := o.logprobs(r.Prompt)
	ev := engine.Event{Token: top[0].Token, StopToken: -1, Finish: engine.FinishLength}
	ev.Logprob = &engine.Logprob{Token: top[0].Token, Logprob: top[0].Logprob, Rank: 1, Top: top[:min(len(top), r.Params.Logprobs)]}
	push(ev)
	return []*engine.Stream{st}, nil
}

// found is a reply and its score.
type found struct {
	text  string
	score float64
	stop  bool
}

// all returns every reply of up to most tokens.
func (o *oracle) all(prompt, tokens []int32, sum float64, most int, penalty float64) []found {
	score := func(n int) float64 { return sum / math.Pow(float64(len(prompt)+n), penalty) }
	if len(tokens) == most {
		return []found{{spelled(tokens), score(most), false}}
	}
	var out []found
	for _, t := range o.logprobs(slices.Concat(prompt, tokens)) {
		next := sum + float64(t.Logprob)
		if t.Token == chattest.EOS {
			out = append(out, found{spelled(tokens), next / math.Pow(float64(len(prompt)+len(tokens)), penalty), true})
			continue
		}
		out = append(out, o.all(prompt, append(slices.Clone(tokens), t.Token), next, most, penalty)...)
	}
	return out
}

func spelled(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteByte(byte(id))
	}
	return b.String()
}

func beams(o *oracle) *chat.Service {
	cfg := chattest.Config(&chattest.Model{})
	cfg.Engine = o
	return chat.New(cfg)
}

// replies returns the replies to a request.
func replies(t *testing.T, s *chat.Service, a chat.RequestParams) []chat.Reply {
	t.Helper()
	run, err := start(t, s, a, chattest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	out, err := run.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func beamAsk(n, most int, penalty float64) chat.RequestParams {
	return chat.RequestParams{
		Prompts: []chat.Prompt{{Tokens: []int32{65, 66}}}, N: n, Beam: true, LengthPenalty: penalty,
		Sampling: chat.Sampling{MaxTokens: &most}, SkipSpecialTokens: true,
	}
}

// TestBeamSearchIsExact checks that a search that drops no beam returns the best of all
// possible replies, in order.
func TestBeamSearchIsExact(t *testing.T) {
	for seed := range uint64(40) {
		for _, penalty := range []float64{0, 1, -1, 2.5} {
			o := &oracle{seed: seed, words: []int32{'a', 'b', chattest.EOS}}
			const most, n = 3, 8 // 2³ unfinished replies
			want := o.all([]int32{65, 66}, nil, 0, most, penalty)
			slices.SortStableFunc(want, func(a, b found) int { return cmp.Compare(b.score, a.score) })
			got := replies(t, beams(o), beamAsk(n, most, penalty))
			for i, r := range got {
				if w := want[i]; r.Text != w.text || (r.Finish == "stop") != w.stop || r.Choice != i {
					t.Errorf("seed %d, penalty %v: choice %d is %q (%s), want %q", seed, penalty, i, r.Text, r.Finish, w.text)
				}
			}
		}
	}
}

// plain is a simple search that makes every step and never stops early.
func (o *oracle) plain(prompt []int32, n, most, least int, penalty float64) (texts []string) {
	type line struct {
		tokens []int32
		sum    float64
		end    bool
	}
	score := func(l line) float64 { return l.sum / math.Pow(float64(len(prompt)+len(l.tokens)), penalty) }
	best := func(list []line) []line {
		slices.SortStableFunc(list, func(a, b line) int { return cmp.Compare(score(b), score(a)) })
		return list[:min(n, len(list))]
	}
	live, done := []line{{}}, []line(nil)
	for step := range most {
		var next []line
		for _, l := range live {
			top := o.logprobs(slices.Concat(prompt, l.tokens))
			for _, t := range top[:min(len(top), 2*n)] {
				sum := l.sum + float64(t.Logprob)
				switch {
				case t.Token != chattest.EOS:
					next = append(next, line{append(slices.Clone(l.tokens), t.Token), sum, false})
				case step+1 >= least:
					done = append(done, line{l.tokens, sum, true})
				}
			}
		}
		live = best(next)
	}
	for _, l := range best(append(done, live...)) {
		texts = append(texts, spelled(l.tokens))
	}
	return texts
}

// TestBeamSearchStopsEarly checks that stopping early does not change the replies.
func TestBeamSearchStopsEarly(t *testing.T) {
	for seed := range uint64(60) {
		o := &oracle{seed: seed, words: []int32{'a', 'b', 'c', chattest.EOS}}
		for _, penalty := range []float64{0, 1, -0.5, 3} {
			n, most, least := 1+int(seed%3), 6, int(seed%4)
			a := beamAsk(n, most, penalty)
			a.MinTokens = least
			var got []string
			for _, r := range replies(t, beams(o), a) {
				got = append(got, r.Text)
			}
			if want := o.plain([]int32{65, 66}, n, most, least, penalty); !slices.Equal(got, want) {
				t.Errorf("seed %d, %d beams, penalty %v, min_tokens %d: %q, want %q", seed, n, penalty, least, got, want)
			}
		}
	}
}

// TestBeamSearchIsGreedyAlone checks that a search with one beam that never ends early gives
// the reply of greedy decoding.
func TestBeamSearchIsGreedyAlone(t *testing.T) {
	o := &oracle{seed: 3, words: []int32{'a', 'b', 'c', 'd'}}
	var want []int32
	for range 12 {
		want = append(want, o.logprobs(append([]int32{65, 66}, want...))[0].Token)
	}
	got := replies(t, beams(o), beamAsk(1, 12, 1))
	if got[0].Text != spelled(want) || got[0].Finish != "length" || o.asked.Load() != 12 {
		t.Errorf("%q (%s) in %d requests, want %q", got[0].Text, got[0].Finish, o.asked.Load(), spelled(want))
	}
}

// TestBeamSearchEnds checks that the search stops once no reply can improve, that min_tokens
// and ignore_eos apply, and that requested logprobs are returned.
func TestBeamSearchEnds(t *testing.T) {
	o := &oracle{seed: 1, words: []int32{'a', chattest.EOS}}
	a := beamAsk(1, 150, 0)
	replies(t, beams(o), a)
	if n := o.asked.Load(); n > 100 {
		t.Errorf("%d requests for a search that was settled early", n)
	}
	one := 1
	a.MinTokens, a.Logprobs = 4, &one
	r := replies(t, beams(o), a)[0]
	if len(r.Tokens) < 4 || len(r.Logprobs) != len(r.Tokens) || len(r.Logprobs[0].Top) != 1 {
		t.Errorf("min_tokens: %d tokens, logprobs %+v", len(r.Tokens), r.Logprobs)
	}
	a = beamAsk(2, 5, 1)
	a.IgnoreEOS = true
	for _, r := range replies(t, beams(o), a) {
		if len(r.Tokens) != 5 || r.Finish != "length" {
			t.Errorf("ignore_eos: %v (%s)", r.Tokens, r.Finish)
		}
	}
}

// TestBeamSearchFails checks that an error during the search becomes the request's error, with
// its kind.
func TestBeamSearchFails(t *testing.T) {
	o := &oracle{seed: 1, words: []int32{'a', 'b'}, fail: 4}
	s := beams(o)
	run, err := start(t, s, beamAsk(2, 9, 1), chattest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Wait(t.Context())
	var e *chat.Error
	if !errors.As(err, &e) || e.Kind != chat.Overloaded {
		t.Errorf("got %v", err)
	}
}
