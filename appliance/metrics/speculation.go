package metrics

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"vapp.dev/engine"
)

// specSeries are the series of speculative decoding.
type specSeries struct {
	drafts, proposed, accepted prometheus.Counter
	perPosition                *vec[*counter]
}

// specFor returns the series for an engine with up to n draft tokens per sequence and step; nil for 0.
func (m *Metrics) specFor(n int) *specSeries {
	if n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.spec == nil {
		m.spec = newSpecSeries(m.labelled)
	}
	for i := range n {
		m.spec.at(i)
	}
	return m.spec
}

func newSpecSeries(f factory) *specSeries {
	return &specSeries{
		drafts:      f.counter("vllm:spec_decode_num_drafts_total", "Times that proposed tokens of a request were verified."),
		proposed:    f.counter("vllm:spec_decode_num_draft_tokens_total", "Proposed tokens that were verified."),
		accepted:    f.counter("vllm:spec_decode_num_accepted_tokens_total", "Proposed tokens that were accepted."),
		perPosition: f.counters("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted tokens by their position in the proposal, from 0.", "position"),
	}
}

// at returns the counter of a position in the proposal.
func (e *specSeries) at(i int) prometheus.Counter {
	return e.perPosition.WithLabelValues(strconv.Itoa(i))
}

func (e *specSeries) step(s engine.StepStats) {
	if e == nil {
		return
	}
	add(e.drafts, s.Drafts)
	add(e.proposed, s.DraftTokens)
	add(e.accepted, s.AcceptedTokens)
	for i, n := range s.AcceptedPerPosition {
		add(e.at(i), n)
	}
}

// speculation counts draft tokens since the last statistics line.
type speculation struct {
	drafts, proposed, accepted int
	position                   []int
}

func (v *speculation) add(s engine.StepStats) {
	v.drafts += s.Drafts
	v.proposed += s.DraftTokens
	v.accepted += s.AcceptedTokens
	for i, n := range s.AcceptedPerPosition {
		if i == len(v.position) {
			v.position = append(v.position, 0)
		}
		v.position[i] += n
	}
}

// take returns a copy of v and resets v.
func (v *speculation) take() speculation {
	out := *v
	out.position = append([]int(nil), v.position...)
	v.drafts, v.proposed, v.accepted = 0, 0, 0
	clear(v.position)
	return out
}

// line returns the statistics line of a number of seconds in vLLM's wording; "" without
// draft tokens.
func (v speculation) line(seconds float64) string {
	if v.drafts == 0 || v.proposed == 0 {
		return ""
	}
	var rates []string
	for _, n := range v.position {
		rates = append(rates, fmt.Sprintf("%.3f", float64(n)/float64(v.drafts)))
	}
	var accepted, drafted float64
	if seconds > 0 {
		accepted, drafted = float64(v.accepted)/seconds, float64(v.proposed)/seconds
	}
	return fmt.Sprintf("SpecDecoding metrics: Mean acceptance length: %.2f, Accepted throughput: %.2f tokens/s, Drafted throughput: %.2f tokens/s, "+
		"Accepted: %d tokens, Drafted: %d tokens, Per-position acceptance rate: %s, Avg Draft acceptance rate: %.1f%%",
		1+float64(v.accepted)/float64(v.drafts), accepted, drafted, v.accepted, v.proposed, strings.Join(rates, ", "), 100*float64(v.accepted)/float64(v.proposed))
}
