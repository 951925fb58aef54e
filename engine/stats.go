package engine

import (
	"sync"
	"time"

	"vapp.dev/engine/grammar"
	"vapp.dev/engine/sched"
)

// StepStats is what one step did.
type StepStats struct {
	PromptTokens     int // prompt tokens computed
	GenerationTokens int
	Preempted        int // sequences preempted for lack of pages
	SwappedOut       int // of these, sequences whose pages went to swap space
	SwappedIn        int // sequences whose pages came back
	// FirstTokens are arrival → first token, of choices that got theirs; BetweenTokens the
	// times since the choice's previous step with a token. Both are valid during the call.
	FirstTokens, BetweenTokens []time.Duration
	// CacheQueries and CacheHits count prompt tokens of newly scheduled prompts.
	CacheQueries, CacheHits int
	// Drafts is how many sequences had proposed tokens verified, DraftTokens how many
	// these were, AcceptedTokens those of them that held. AcceptedPerPosition counts
	// sequences by the position of an accepted token; it is valid during the call.
	Drafts, DraftTokens, AcceptedTokens int
	AcceptedPerPosition                 []int
	// MaskTimes are what the masks of tokens drawn under a grammar took to make, beside
	// the loop; GrammarTime is the loop's own: following grammars, waiting for masks.
	MaskTimes   []time.Duration
	GrammarTime time.Duration
	Duration    time.Duration // launch → committed
	// Graph is how the step ran on a device that captures graphs, in vLLM's words: "FULL",
	// "PIECEWISE", or "NONE" and NoGraph why; "" on one that captures none.
	Graph, NoGraph string
	// BeyondTarget says that streams waited longer for this step than Options.ITLTarget.
	BeyondTarget bool
}

// RequestStats is the life of one choice.
type RequestStats struct {
	ID                              string
	Finish                          Finish
	PromptTokens, CachedTokens      int
	GenerationTokens                int
	MaxTokens                       int
	Pooled                          bool // it asked for no tokens
	N                               int  // choices of its request
	Choice                          int  // 0 is the first: counts the request once
	Arrival, Queued, Scheduled      time.Time
	FirstToken, LastToken, Finished time.Time // zero where it never came so far
}

// Stats is a snapshot, cheap to take and never older than the last step.
type Stats struct {
	Running, Waiting int
	KVPages          int     // pages the arena can hold (first class)
	KVUsed           float64 // share of pages in use, 0..1
	KVTokens         int64   // tokens of running sequences whose KV it holds
	KVCached         int     // free pages that still hold a cached prefix
	Swapped          int     // of Waiting, those whose pages are in swap space
	SwapUsed         float64 // share of swap space in use, 0..1
	Preemptions      int64
	Steps            int64
}

// publish shows the state to Stats.
func (l *loop) publish() {
	running, waiting := l.sched.Counts()
	use := l.pool.Usage(0)
	swapped, swapUsed := 0, 0.0
	if l.swap != nil {
		swapped, swapUsed = l.swap.Tables(), l.swap.Share()
	}
	l.e.stats.set(Stats{
		Running: running, Waiting: waiting + len(l.deferred),
		KVPages: l.e.pages, KVUsed: l.pool.Share(), KVTokens: l.sched.Tokens(), KVCached: use.Cached, Swapped: swapped, SwapUsed: swapUsed,
		Preemptions: l.preemptions, Steps: l.steps,
	})
}

// published is the last snapshot. It is copied, not shared: a step makes no garbage of it.
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

// account adds what the scheduler decided to a step's figures.
func (l *loop) reportSchedule(s *sched.Step, report *StepStats) {
	report.PromptTokens, report.Preempted = s.Stats.PromptTokens, s.Stats.Preempted
	report.SwappedOut, report.SwappedIn = s.Stats.SwappedOut, s.Stats.SwappedIn
	report.CacheQueries, report.CacheHits = s.Stats.CacheQueries, s.Stats.CacheHits
	l.preemptions += int64(s.Stats.Preempted)
}

// count adds a generated token to the figures; with more it came with the one
// before.
func (l *loop) count(c *choice, more bool, now time.Time, report *StepStats) {
	report.GenerationTokens++
	if c.stats.GenerationTokens == 0 {
		c.stats.FirstToken = now
		report.FirstTokens = append(report.FirstTokens, now.Sub(c.stats.Arrival))
	} else if !more {
		report.BetweenTokens = append(report.BetweenTokens, now.Sub(c.stats.LastToken))
	}
	c.stats.GenerationTokens++
	c.stats.LastToken = now
}

// grammar adds what a sequence's grammar cost.
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

// speculated adds what became of a step's proposals.
func reportSpeculation(v sched.Speculation, report *StepStats) {
	report.Drafts, report.DraftTokens, report.AcceptedTokens = v.Drafts, v.Proposed, v.Accepted
	report.AcceptedPerPosition = v.PerPosition
}
