package engine_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/sample"
)

// soakRequest is a request of the soak test with its reader's behaviour.
type soakRequest struct {
	engine.Request
	cancel, stop int           // after how many tokens the reader cancels or stops; −1: never
	leave        time.Duration // when the reader cancels, whatever it has received; 0: never
	again        bool          // submitted a second time
}

// newSoakRequest returns request i to a model of that many tokens. Lengths are spread up to the
// longest, with as many short as long ones; at most one in ten has more than 1,024 tokens.
func newSoakRequest(i, longest, vocab int) soakRequest {
	r := rand.New(rand.NewPCG(uint64(i), 11))
	p := sample.Default()
	p.MaxTokens = 1 + r.IntN(min(96, longest/3))
	if r.IntN(10) > 0 {
		longest = min(longest, 1024)
	}
	token := func() int32 { return int32(r.IntN(min(250, vocab))) }
	n := int(math.Exp(r.Float64() * math.Log(float64(longest-p.MaxTokens))))
	q := soakRequest{cancel: -1, stop: -1, Request: engine.Request{
		ID: fmt.Sprint("soak", i), Prompt: soakPrompt(r, max(1, n), vocab), N: 1 + r.IntN(8)/7,
		Priority: r.IntN(5) - 2, Salt: []string{"", "", "", "other"}[r.IntN(4)],
	}}
	if p.Temperature = float64(r.IntN(2)); p.Temperature > 0 {
		p.Seed, p.HasSeed = r.Uint64(), true
	}
	switch r.IntN(6) {
	case 0, 1:
		p.StopTokenIDs = []int32{token(), token(), token()}
	case 2: // few tokens, repeated
		p.AllowedTokenIDs, p.MinTokens = []int32{5, 9, 40, 41}, r.IntN(p.MaxTokens)
		p.StopTokenIDs = []int32{41}
	case 3:
		p.Repetition, p.Frequency = 1.2, 0.3
	}
	if r.IntN(10) == 0 {
		p.PromptLogprobs = 1
	}
	if r.IntN(10) == 0 {
		p.Logprobs = 3
	}
	switch r.IntN(16) {
	case 0:
		q.cancel = 0
	case 1, 2:
		q.cancel = r.IntN(p.MaxTokens)
	case 3:
		q.stop = 1 + r.IntN(p.MaxTokens)
	case 4:
		q.leave = time.Duration(1 + r.IntN(200e6))
	case 5:
		q.Deadline = time.Now().Add(time.Duration(r.IntN(200e6)))
	default:
		q.again = r.IntN(3) == 0
	}
	q.Params = p
	return q
}

// soakPrompt returns n tokens, whose first two thirds are shared with many other prompts.
func soakPrompt(r *rand.Rand, n, vocab int) []int32 {
	prompt := make([]int32, n)
	common := r.IntN(4)
	for k := range prompt {
		if prompt[k] = int32((common*40 + k*7 + k/1000) % min(250, vocab)); k > 2*n/3 {
			prompt[k] = int32(r.IntN(min(250, vocab)))
		}
	}
	return prompt
}

// stuck is the longest time without an event before a choice counts as stuck.
const stuck = 5 * time.Minute

// read follows choice k of a request to its end.
func (s *soaking) read(t *testing.T, q *soakRequest, k int, stream *engine.Stream) {
	if q.leave > 0 {
		gone := time.AfterFunc(q.leave, stream.Cancel)
		defer gone.Stop()
	}
	var tokens []int32
	var last engine.Event
	for done := false; !done; {
		if len(tokens) == q.cancel {
			stream.Cancel()
		}
		ctx, cancel := context.WithTimeout(context.Background(), stuck)
		evs, err := stream.Next(ctx)
		if cancel(); err != nil {
			t.Errorf("%v is stuck after %d tokens: %v, %+v", q, len(tokens), err, s.e.Stats())
			s.lose()
			return
		}
		done = len(evs) == 0
		for _, ev := range evs {
			if last.Finish != engine.NotFinished {
				t.Errorf("%v ended with %v, and then came %+v", q, last.Finish, ev)
				s.lose()
			}
			if ev.Token >= 0 {
				tokens = append(tokens, ev.Token)
			}
			switch last = ev; len(tokens) {
			case q.cancel:
				stream.Cancel()
			case q.stop:
				stream.Stop()
			}
		}
	}
	if !q.fair(tokens, last) {
		t.Errorf("%v ended with %v (stop token %d) after %d tokens: %v", q, last.Finish, last.StopToken, len(tokens), last.Err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends[last.Finish]++
	if q.again && k == 0 {
		s.again, s.want = append(s.again, *q), append(s.want, tokens)
	}
}

func (s *soaking) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
}

// fair checks that a choice ended for a valid reason.
func (q *soakRequest) fair(tokens []int32, last engine.Event) bool {
	switch n := len(tokens); last.Finish {
	case engine.FinishLength:
		return n == q.Params.MaxTokens
	case engine.FinishStop:
		if last.Token < 0 {
			return q.stop > 0 && n >= q.stop
		}
		return n > q.Params.MinTokens && last.Token == last.StopToken && slices.Contains(q.Params.StopTokenIDs, last.Token)
	case engine.FinishAbort:
		return n < q.Params.MaxTokens && (q.cancel >= 0 || q.leave > 0 || !q.Deadline.IsZero())
	}
	return false
}
