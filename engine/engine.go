package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/ranks"
	"vapp.dev/engine/runner"
	"vapp.dev/engine/sched"
)

// Config is the argument of Open: the plan's decisions and the account computed for them.
type Config struct {
	Options Options
	Model   *Model
	Opener  backend.Opener
	Facts   backend.Facts
	Account *Account
	Hooks   Hooks
	// Progress is called with the progress of loading, by one goroutine at a time; it may be nil.
	Progress func(Progress)
	// Ranks are the other ranks of the model; nil: there are none. Options.Backend.Group connects them.
	Ranks *Ranks
	// Turns shares the device with other engines; nil: the engine has it alone.
	Turns Turns
	// Weights are those of another engine, of the same model on the same device (Engine.Weights): Open does not load
	// them. The caller still closes its reference. nil: Open loads the weights.
	Weights backend.PackedWeights

	now func() time.Time // the loop's clock; nil: time.Now
}

// Engine runs one model. Its methods may be called from any goroutine.
type Engine struct {
	opts  Options
	dev   backend.Device // of this rank
	all   backend.Device // runs steps on all ranks; dev if there is one
	in    *inbox
	stats published
	queue atomic.Int64  // most waiting requests; 0: no limit
	open  atomic.Int64  // choices submitted and not ended
	done  chan struct{} // closed when the loop has ended
	pages int           // of the first class
	kv    kv.Layout
	vocab int // vocabulary size
	width int // numbers of an output row of a pooling model; 0: the model generates

	tower    *backend.Program // of the vision tower; nil: requests have no items
	encoder  backend.EncoderShape
	axes     int // positions of a token; 0: one
	schedule sched.Options

	cache    cacheWriter
	adapters adapters
	leader   *ranks.Leader // nil: there is one rank
	// disconnect closes what connects the ranks; may be nil.
	disconnect func() error
	close      sync.Once
	closed     error
}

// Open takes the memory of the account, loads the model and starts the loop.
// Cancelling ctx stops the load. With Weights, the error is a *backend.WeightsError if the engine cannot use them.
func Open(ctx context.Context, c Config) (*Engine, error) {
	if err := c.Model.Loadable(); err != nil {
		return nil, err
	}
	r := c.Account.Reservation
	schedule := schedOptions(c.Options, c.Account)
	if c.Ranks != nil && c.Ranks.Places.Pipeline > 1 && c.Options.Drafts == 0 {
		schedule.Lag, schedule.Staged = c.Account.WholeStep.NumSets()-1, true
	}
	if err := schedule.Validate(); err != nil {
		return nil, err
	}
	if v := c.Model.Source.Build.Verify; v != c.Options.Drafts {
		return nil, fmt.Errorf("the model is built to verify %d proposed tokens and the engine is to verify %d", v, c.Options.Drafts)
	}
	dev, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.lead(ctx, dev)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	run, err := runner.New(all, c.Account.whole())
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	if err := run.Capture(ctx, c.Options.Backend.Graphs, c.captureProgress()); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	e := &Engine{opts: c.Options, dev: dev, all: all, in: newInbox(), done: make(chan struct{}), kv: c.Account.Pool, vocab: r.Step.Vocab, width: r.Step.OutputCols,
		tower: c.Account.encoder(), encoder: r.Encoder, axes: r.Step.Axes, schedule: schedule}
	e.queue.Store(int64(c.Options.MaxQueue))
	slabs, swap := c.slabs()
	e.pages = e.kv.Pages(0, slabs)
	e.stats.set(Stats{KVPages: e.pages, EncodedRows: schedule.Encoder.Rows})
	pool := kv.NewPool(e.kv, slabs, c.Options.PrefixCaching)
	if b := c.Hooks.Blocks; b != nil {
		pool.Record(b.Seed)
	}
	l := newLoop(e, run, pool, schedule, c.Hooks)
	l.turns.of = c.Turns
	if c.now != nil {
		l.now = c.now
	}
	if swap > 0 {
		l.swap = kv.NewPool(e.kv, swap, false)
		l.sched.SetSwap(l.swap)
	}
	e.adapters.open(c.Model)
	e.cache = writeCache(dev, c.Hooks.Cache)
	e.watchRanks(c)
	go l.run()
	return e, nil
}

// captureProgress returns a function that passes the number of captured graphs to Progress.
func (c Config) captureProgress() func(done, of int) {
	if c.Progress == nil {
		return nil
	}
	return func(done, of int) { c.Progress(Progress{Done: int64(done), Total: int64(of), Capturing: true}) }
}

// GraphBytes returns the device memory that captured graphs took; ok is false if the device
// captures none.
func (e *Engine) GraphBytes() (n int64, ok bool) {
	c, ok := e.dev.(backend.Capturer)
	if !ok || len(e.opts.Backend.Graphs.Sizes) == 0 {
		return 0, false
	}
	return c.GraphBytes(), true
}

// CollectiveBytes returns the device memory that the library of collectives says it has taken; ok is false with one rank, and with
// a library that does not say.
func (e *Engine) CollectiveBytes() (n int64, ok bool) {
	if d, is := e.dev.(interface{ CollectiveBytes() (int64, bool) }); is {
		n, ok = d.CollectiveBytes()
	}
	return n, ok
}

// Memory returns backend.MemoryReporter.Memory; ok is false if the device does not implement it or it fails.
func (e *Engine) Memory() (total, before, now int64, ok bool) {
	g, ok := e.dev.(backend.MemoryReporter)
	if !ok {
		return 0, 0, 0, false
	}
	total, before, now, err := g.Memory()
	return total, before, now, err == nil
}

// Usage returns the bytes that the device really allocated for each arena, to compare with the ledger.
func (e *Engine) Usage() [backend.NumArenas]int64 { return e.dev.Usage() }

// OpTimes returns the measured times of the device's ops, in steps whose sequences have one
// token each and in all other steps. It is empty unless op timing is on in Options.Backend.
func (e *Engine) OpTimes() (decode, prompts []backend.OpTime) {
	if p, ok := e.dev.(backend.OpTimer); ok {
		return p.OpTimes()
	}
	return nil, nil
}

// KernelTimes returns the times of OpTimes by kernel, where the device sums them so: Op is the kernel's name, Runs are its
// launches. Steps that run as graphs do not count.
func (e *Engine) KernelTimes() (decode, prompts []backend.OpTime) {
	p, ok := e.dev.(interface {
		KernelTimes() (decode, prompts []backend.OpTime)
	})
	if !ok {
		return nil, nil
	}
	return p.KernelTimes()
}

// Huge returns how many bytes of the arenas are in huge pages and the arenas' total; ok is
// false if the device does not know.
func (e *Engine) Huge() (huge, of int64, ok bool) {
	d, ok := e.dev.(interface{ Huge() (int64, int64) })
	if ok {
		huge, of = d.Huge()
	}
	return huge, of, ok
}

// Notes returns what the device says about its start, a line each.
func (e *Engine) Notes() []string {
	if d, ok := e.dev.(backend.Noter); ok {
		return d.Notes()
	}
	return nil
}

// Placement returns what the device has on the machine's NUMA nodes; nothing if it does not place
// threads and memory.
func (e *Engine) Placement() backend.Placement {
	if d, ok := e.dev.(backend.Placer); ok {
		return d.Placement()
	}
	return backend.Placement{}
}

// Stats returns the state after the last step.
func (e *Engine) Stats() Stats { return e.stats.get() }

// SetMaxQueue changes how many requests may wait; 0: no limit.
func (e *Engine) SetMaxQueue(n int) { e.queue.Store(int64(n)) }

// Submit queues a request and returns one Stream for each of its choices. It uses of ctx only its
// Observer. The error is a *TooLongError, an *ItemError, a *ConflictError, an *AdapterError, ErrOverloaded, ErrClosed, grammar.ErrBusy, or wraps
// ErrDead or ErrGrammar.
func (e *Engine) Submit(ctx context.Context, r Request) ([]*Stream, error) {
	if err := e.checkRequest(r); err != nil {
		return nil, err
	}
	items, err := e.schedItems(&r)
	if err != nil {
		return nil, err
	}
	n := max(1, r.N)
	if r.Pooling != NoPooling {
		n = 1
	}
	now := time.Now()
	states, err := r.newStates(n)
	if err != nil {
		return nil, err
	}
	if err := e.checkConstraints(r, states[0]); err != nil {
		closeStates(states)
		return nil, err
	}
	var add []*choice
	var out []*Stream
	a, err := e.adapters.take(r.Adapter, n)
	if err != nil {
		closeStates(states)
		return nil, err
	}
	for i, seq := range newSeqs(r, a, states, items) {
		c := &choice{seq: seq, deadline: r.Deadline, adapter: a}
		c.stream = newStream(r.ID, func(f Finish) { _ = e.in.put(message{cancel: c, finish: f}) })
		c.stats = RequestStats{ID: r.ID, PromptTokens: len(r.Prompt), MaxTokens: r.Params.MaxTokens, N: n, Choice: i, Arrival: now, Queued: now, Pooled: r.Pooling != NoPooling}
		if r.Pooling != NoPooling {
			c.stats.MaxTokens, c.pooled = 0, newPooled(r, e.width)
		}
		add, out = append(add, c), append(out, c.stream)
	}
	e.open.Add(int64(n))
	observe(ObserverOf(ctx), r, add)
	if err := e.in.put(message{add: add}); err != nil {
		unobserve(ObserverOf(ctx), add)
		e.open.Add(-int64(n))
		a.drop(n)
		closeStates(states)
		return nil, err
	}
	return out, nil
}

// checkRequest refuses a request that could never run, and one that exceeds the queue's limit.
func (e *Engine) checkRequest(r Request) error {
	if err := e.in.reason(); err != nil {
		return err
	}
	if len(r.Prompt) == 0 {
		return errors.New("the prompt has no tokens")
	}
	for i, id := range r.Prompt {
		if id < 0 || int(id) >= e.vocab {
			return fmt.Errorf("token %d of the prompt is %d: the vocabulary has ids 0 to %d", i, id, e.vocab-1)
		}
	}
	if err := e.checkPooling(r); err != nil {
		return err
	}
	if n := len(r.Prompt) + r.Params.MaxTokens; n > e.opts.MaxModelLen && r.Pooling == NoPooling {
		return &TooLongError{Prompt: len(r.Prompt), Output: r.Params.MaxTokens, Limit: e.opts.MaxModelLen, What: "the model's maximum context length"}
	}
	if most := e.queue.Load(); most > 0 && int64(e.Stats().Waiting) >= most {
		return fmt.Errorf("%w: %d requests wait", ErrOverloaded, most)
	}
	return nil
}

// SetPolicy changes the scheduling policy. Requests that arrive from now on wait until all
// earlier ones have ended, and then run under the new policy. The channel receives false if
// the change has to wait, and true when it is in force. It is closed then, or when another
// change replaces this one. An engine that ends sends nothing, so callers wait for Done too.
func (e *Engine) SetPolicy(p sched.Policy) <-chan bool {
	c := &policyChange{to: p, inForce: make(chan bool, 2)}
	_ = e.in.put(message{do: func(l *loop) {
		if l.policy != nil {
			close(l.policy.inForce)
		}
		l.policy = c
	}})
	return c.inForce
}

// policyChange is a policy change that waits for the running requests to end.
type policyChange struct {
	to      sched.Policy
	inForce chan bool // capacity 2: both values
	waits   bool      // false was sent
}

// Check verifies, between two steps, that every KV page is accounted for exactly once and that
// the scheduler's state is consistent.
func (e *Engine) Check(ctx context.Context) error {
	answer := make(chan error, 1)
	if err := e.in.put(message{do: func(l *loop) { answer <- l.sched.Check() }}); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-e.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drain refuses new requests and waits until all others have ended or ctx is done.
func (e *Engine) Drain(ctx context.Context) error {
	e.in.shut(ErrClosed)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for e.open.Load() > 0 {
		select {
		case <-tick.C:
		case <-e.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Done returns a channel that is closed when the loop has ended, by Close or because the device failed.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err returns why the engine accepts no more requests: ErrClosed or an error that wraps
// ErrDead. It returns nil while requests are accepted.
func (e *Engine) Err() error { return e.in.reason() }

// closeGrace is the time that Close gives the running steps of several ranks; then it ends their group.
const closeGrace = 2 * time.Second

var errCut = errors.New("rank 0 ended during a long step")

// Close aborts all requests, stops the loop and frees all memory but weights that others use. The Model stays open.
func (e *Engine) Close() error {
	e.in.shut(ErrClosed)
	_ = e.in.put(message{do: func(l *loop) { l.closing = true }})
	if e.leader != nil { // other ranks may be gone, and a step of the CPU can be long
		defer time.AfterFunc(closeGrace, func() { e.leader.Fail(errCut) }).Stop()
	}
	<-e.done
	e.close.Do(func() {
		e.cache.end()
		if e.leader != nil {
			e.leader.Close()
		}
		e.closed = e.dev.Close()
		if e.disconnect != nil {
			e.closed = errors.Join(e.closed, e.disconnect())
		}
	})
	return e.closed
}
