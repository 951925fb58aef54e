package engine

import (
	"sync"
	"time"

	"vapp.dev/engine/grammar"
	"vapp.dev/engine/sched"
	"vapp.dev/engine/steptime"
)

// StepStats are the statistics of one step.
type StepStats struct {
	PromptTokens     int // prompt tokens computed
	GenerationTokens int
	Preempted        int // sequences preempted for lack of pages
	SwappedOut       int // of these, sequences whose pages went to swap space
	SwappedIn        int // sequences whose pages came back
	// FirstTokens are the times from arrival to first token, of choices that got theirs in
	// this step. BetweenTokens are the times since each choice's previous step with a token.
	// Both are valid during the call.
	FirstTokens, BetweenTokens []time.Duration
	// FirstObservers and BetweenObservers are the observers of the choices of FirstTokens and
	// BetweenTokens, nil for a choice without one. Both are valid during the call.
	FirstObservers, BetweenObservers []Observer
	// CacheQueries and CacheHits count prompt tokens of newly scheduled prompts.
	CacheQueries, CacheHits int
	// Items counts the images that rows began to compute, EncodedItems those that were encoded: the
	// others were in the encoder cache.
	Items, EncodedItems int
	// Drafts counts the sequences whose proposed tokens were verified, DraftTokens those
	// tokens and AcceptedTokens the accepted ones. AcceptedPerPosition counts, for each
	// position, the sequences whose proposal there was accepted; it is valid during the call.
	Drafts, DraftTokens, AcceptedTokens int
	AcceptedPerPosition                 []int
	// MaskTimes are the times that other goroutines took to compute the masks of tokens drawn
	// under a grammar. GrammarTime is the loop's own time for grammars, waiting for masks included.
	MaskTimes   []time.Duration
	GrammarTime time.Duration
	Duration    time.Duration // launch → committed
	// Took is the time since the previous commit, or since the launch if the device was idle: what the step
	// itself took, also where it was launched while the previous one ran.
	Took time.Duration
	Work steptime.Work // what the step computed
	// Graph is how the step ran on a device that captures graphs, in vLLM's words: "FULL",
	// "PIECEWISE" or "NONE". NoGraph is the reason for "NONE". Both are "" on other devices.
	Graph, NoGraph string
	// BeyondTarget reports that streams waited longer for this step than Options.ITLTarget.
	BeyondTarget bool
}

// RequestStats are the statistics of one choice, reported when it ends.
type RequestStats struct {
	ID                              string
	Finish                          Finish
	PromptTokens, CachedTokens      int
	GenerationTokens                int
	MaxTokens                       int
	Pooled                          bool // the request asked for pooled hidden states, not tokens
	N                               int  // number of choices of its request
	Choice                          int  // index of this choice: counting index 0 counts requests
	Arrival, Queued, Scheduled      time.Time
	FirstToken, LastToken, Finished time.Time   // zero if it never happened
	Preempted                       []time.Time // when it lost its pages: the first 16 times
	Observer                        Observer    // of the request; nil: none
}

// Stats is a snapshot of the engine after its last step.
type Stats struct {
	Running, Waiting int
	Deferred         int     // of Waiting, those that arrived while a policy change is pending
	KVPages          int     // pages of the first class that the arena can hold
	KVUsed           float64 // share of pages in use, 0..1
	KVTokens         int64   // tokens of running sequences whose K and V are in the arena
	KVCached         int     // free pages that still hold a cached prefix
	Swapped          int     // of Waiting, those whose pages are in swap space
	SwapUsed         float64 // share of swap space in use, 0..1
	EncodedRows      int     // rows that the encoder cache can hold; 0: there is none
	EncodedUsed      int     // rows that hold an image
	Preemptions      int64
	Steps            int64
}

// publish stores the current state for Engine.Stats, and reports the changes of the prefix cache.
func (l *loop) publish() {
	running, waiting := l.sched.Counts()
	use := l.pool.Usage(0)
	swapped, swapUsed := 0, 0.0
	if l.swap != nil {
		swapped, swapUsed = l.swap.Tables(), l.swap.Share()
	}
	rows, held := l.sched.EncodedRows()
	l.e.stats.set(Stats{
		EncodedRows: rows, EncodedUsed: held,
		Running: running, Waiting: waiting + len(l.deferred), Deferred: len(l.deferred),
		KVPages: l.e.pages, KVUsed: l.pool.Share(), KVTokens: l.sched.Tokens(), KVCached: use.Cached, Swapped: swapped, SwapUsed: swapUsed,
		Preemptions: l.preemptions, Steps: l.steps,
	})
	if b := l.hooks.Blocks; b != nil {
		if changes := l.pool.Changes(); len(changes) > 0 {
			b.Changed(l.pool.Layout(), changes)
		}
	}
}

// published holds the last snapshot. It is copied, so that a step allocates nothing for it.
type published struct {
	mu sync.Mutex
	is Stats
}

func (p *published) set(s Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.is = s
}

func (p *published) get() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.is
}

// reportSchedule copies the scheduler's statistics of a step to its report.
func (l *loop) reportSchedule(s *sched.Step, report *StepStats) {
	report.PromptTokens, report.Preempted = s.Stats.PromptTokens, s.Stats.Preempted
	report.SwappedOut, report.SwappedIn = s.Stats.SwappedOut, s.Stats.SwappedIn
	report.CacheQueries, report.CacheHits = s.Stats.CacheQueries, s.Stats.CacheHits
	report.Items, report.EncodedItems = s.Stats.Items, s.Stats.Encoded
	l.preemptions += int64(s.Stats.Preempted)
}

// count adds a generated token to the statistics. With more, the same step also gave the token
// before it.
func (l *loop) count(c *choice, more bool, now time.Time, report *StepStats) {
	report.GenerationTokens++
	if c.stats.GenerationTokens == 0 {
		c.stats.FirstToken = now
		report.FirstTokens = append(report.FirstTokens, now.Sub(c.stats.Arrival))
		report.FirstObservers = append(report.FirstObservers, c.stats.Observer)
	} else if !more {
		report.BetweenTokens = append(report.BetweenTokens, now.Sub(c.stats.LastToken))
		report.BetweenObservers = append(report.BetweenObservers, c.stats.Observer)
	}
	c.stats.GenerationTokens++
	c.stats.LastToken = now
}

// addGrammar adds the time that a sequence's grammar took.
func (r *StepStats) addGrammar(q *sched.Seq) {
	g := q.Grammar()
	if t, is := g.(*thought); is {
		g = t.next
	}
	s, is := g.(*grammar.State)
	if !is {
		return
	}
	t := s.Times()
	r.GrammarTime += t.Loop
	if t.Mask > 0 {
		r.MaskTimes = append(r.MaskTimes, t.Mask)
	}
}

// reportSpeculation copies how many proposals a step verified and accepted to its report.
func reportSpeculation(v sched.Speculation, report *StepStats) {
	report.Drafts, report.DraftTokens, report.AcceptedTokens = v.Drafts, v.Proposed, v.Accepted
	report.AcceptedPerPosition = v.PerPosition
}
