// Package grammar constrains a reply to a schema, a regular expression or a grammar. A grammar is
// compiled once and followed token by token; a goroutine computes the next token's mask while the
// engine runs its step. It must not know requests, the scheduler or a device. Start reading at
// Compiler.Compile in grammar.go and State.Take in state.go.
package grammar

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"vapp.dev/engine/fairqueue"
	"vapp.dev/engine/tokenizer"
)

// Spec is the source of a grammar and its kind, one of those of package tokenizer.
type Spec = tokenizer.GrammarSpec

// Error reports why a grammar is refused, in the compiler's words.
type Error struct {
	Kind string // of the grammar
	Text string
}

func (e *Error) Error() string { return e.Kind + ": " + e.Text }

const (
	compileBudget = 10 * time.Second // for one grammar, including the wait for a slot
	keep          = 64               // compiled grammars in the cache
	keepBytes     = 2 << 20          // total source bytes in the cache
	maxWaiting    = 128              // plain grammars that wait for a slot
	maxSlots      = 8                // limits the memory of concurrent compilations
)

// Compiler compiles grammars for one model. It may be used from any goroutine.
type Compiler struct {
	tok *tokenizer.Tokenizer
	opt tokenizer.GrammarOptions

	build sync.Once // builds env at the first Compile; takes a second for a large vocabulary
	env   *tokenizer.GrammarEnv
	wrong error

	budget    time.Duration   // for one grammar
	try       Try             // nil: no trials
	compiling *fairqueue.Gate // for plain grammars
	masks     chan struct{}
	store     store
}

// Try compiles a grammar that is not plain in a process that can be killed. cost estimates the
// work, in bytes of source. Before it starts, Try calls unneeded and skips the compilation if that
// returns true. bytes is the memory that the compilation took. The slot stays in use until leave is
// called.
type Try func(ctx context.Context, s Spec, cost int, unneeded func() bool) (leave func(), bytes int64, err error)

// NewCompiler returns the compiler for a model with vocab logits, whose replies end with one of
// eos.
func NewCompiler(t *tokenizer.Tokenizer, vocab int, eos []int32) *Compiler {
	return &Compiler{
		tok: t, opt: tokenizer.GrammarOptions{VocabSize: vocab, EOS: eos},
		budget:    compileBudget,
		compiling: fairqueue.NewGate(numSlots(), maxWaiting),
		masks:     make(chan struct{}, runtime.GOMAXPROCS(0)),
		store:     store{byKey: map[Spec]*Grammar{}},
	}
}

// numSlots returns the number of plain grammars that may compile at once.
func numSlots() int { return min(maxSlots, max(1, runtime.GOMAXPROCS(0)/2)) }

// TryWith makes Compile call f first for grammars that are not plain, because the library cannot be
// interrupted. Call it before the first Compile.
func (c *Compiler) TryWith(f Try) { c.try = f }

// Limit sets the budget in bytes for all live grammars and states; the default is unlimited. Call
// it before the first Compile.
func (c *Compiler) Limit(bytes int64) { c.store.budget = bytes }

// Used returns the bytes that all live grammars and states take.
func (c *Compiler) Used() int64 {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.store.used
}

func (c *Compiler) environment() (*tokenizer.GrammarEnv, error) {
	c.build.Do(func() { c.env, c.wrong = tokenizer.NewGrammarEnv(c.tok, c.opt) })
	return c.env, c.wrong
}

// Compile returns a compiled grammar, cached if it was used recently; the caller must call its
// Release. A grammar that is refused, or that exceeds the budgets of time and memory, is an *Error;
// another error is ErrBusy, ctx's, or one of the tokenizer.
func (c *Compiler) Compile(ctx context.Context, s Spec) (*Grammar, error) {
	if g := c.store.get(s); g != nil {
		return g, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.budget, ErrBusy)
	defer cancel()
	p, err := c.acquireSlot(ctx, s)
	if err != nil {
		return nil, err
	}
	if p.made != nil {
		p.leave()
		return p.made, nil
	}
	if err := c.reserve(s, p.bytes); err != nil {
		p.leave()
		return nil, err
	}
	type made struct {
		g   *Grammar
		err error
	}
	out := make(chan made, 1)
	go func() {
		g, err := c.compile(s, p.bytes)
		p.leave()
		out <- made{g, err}
	}()
	select {
	case m := <-out:
		return m.g, m.err
	case <-ctx.Done():
		go func() {
			if m := <-out; m.g != nil {
				m.g.Release()
			}
		}()
		if err := context.Cause(ctx); !errors.Is(err, ErrBusy) {
			return nil, err
		}
		return nil, &Error{s.Kind, fmt.Sprintf("it takes longer than %v to compile; make it smaller", c.budget)}
	}
}

// reserve allocates the bytes of a compilation from the budget.
func (c *Compiler) reserve(s Spec, bytes int64) error {
	if err := c.store.fits(s, bytes); err != nil {
		return err
	}
	return c.store.alloc(bytes)
}

// ErrBusy reports that other requests' grammars take all slots or all memory.
var ErrBusy = errors.New("grammars of other requests take all compile slots or all memory")

// slot is the right to compile one grammar.
type slot struct {
	leave func()
	bytes int64    // that the compilation takes
	made  *Grammar // compiled by another request during the wait; nil: none
}

// acquireSlot waits for a slot to compile in, and tries grammars that are not plain. Plain grammars
// do not wait for the others. The slot is held until the grammar is in the store, so that the next
// waiter for the same grammar finds it there.
func (c *Compiler) acquireSlot(ctx context.Context, s Spec) (p slot, err error) {
	made := func() bool {
		if p.made == nil {
			p.made = c.store.get(s)
		}
		return p.made != nil
	}
	if c.try == nil || plain(s) {
		p.leave, err = c.compiling.Enter(ctx, cost(s))
		if p.bytes = plainMemory; err == nil {
			made()
		}
	} else {
		p.leave, p.bytes, err = c.try(ctx, s, cost(s), made)
	}
	if err == nil {
		return p, nil
	}
	if p.made != nil {
		p.made.Release()
	}
	var e *tokenizer.Error
	switch {
	case ctx.Err() != nil:
		return slot{}, context.Cause(ctx)
	case errors.Is(err, fairqueue.ErrFull), errors.As(err, &e) && e.Kind == tokenizer.KindBusy:
		return slot{}, ErrBusy
	}
	return slot{}, refusal(s, err)
}

// compile compiles a grammar for which taken bytes are allocated, and corrects the allocation to
// the grammar's size.
func (c *Compiler) compile(s Spec, taken int64) (*Grammar, error) {
	g, err := c.make(s)
	if err != nil {
		c.store.dealloc(taken)
		return nil, err
	}
	err = c.store.fits(s, g.size+g.copy)
	if err == nil && g.size > taken {
		err = c.store.alloc(g.size - taken)
	} else {
		c.store.dealloc(taken - min(g.size, taken))
	}
	if err != nil {
		g.first.Close()
		c.store.dealloc(min(g.size, taken))
		return nil, err
	}
	c.store.put(g)
	return g, nil
}

func (c *Compiler) make(s Spec) (*Grammar, error) {
	env, err := c.environment()
	if err != nil {
		return nil, err
	}
	m, err := env.Compile(s)
	if err != nil {
		return nil, refusal(s, err)
	}
	g := &Grammar{of: c, spec: s, first: m, mask: make([]uint32, env.MaskWords()), uses: 1}
	if err := errors.Join(m.Mask(g.mask), m.Probe(env.MaskWords())); err != nil {
		m.Close()
		return nil, refusal(s, err)
	}
	copied, err := m.Clone()
	if err != nil {
		m.Close()
		return nil, err
	}
	g.size, g.copy = memory(m, g.mask), memory(copied, g.mask)
	copied.Close()
	return g, nil
}

// memory returns the bytes that a matcher and a mask take.
func memory(m *tokenizer.Matcher, mask []uint32) int64 {
	n := m.Bytes()
	return n + n/overhead + 4*int64(len(mask))
}

// rewordings replaces the library's internal terms in error texts.
var rewordings = strings.NewReplacer(" <non-verbose/>", "", "NoExtensionBias", "no text satisfies it")

// refusal converts an error about the grammar to *Error.
func refusal(s Spec, err error) error {
	var e *tokenizer.Error
	if errors.As(err, &e) && (e.Kind == tokenizer.KindGrammar || e.Kind == tokenizer.KindPanic) {
		return &Error{s.Kind, rewordings.Replace(e.Msg)}
	}
	return err
}

// Grammar is a compiled grammar. It may be used from any goroutine until its Release.
type Grammar struct {
	of   *Compiler
	spec Spec
	mask []uint32 // for the first token
	size int64    // its bytes
	copy int64    // bytes of a new state
	uses int      // references by requests, states and calls; protected by the store's mutex

	mu    sync.Mutex
	first *tokenizer.Matcher // at the start of a reply; only cloned
}

// Release ends the caller's use of g: it will begin no more states.
func (g *Grammar) Release() { g.of.store.release(g) }

// Hold adds a user of g, who must also call Release.
func (g *Grammar) Hold() { g.of.store.use(g) }

// Fits returns an *Error if n concurrent states exceed the budget of all grammars.
func (g *Grammar) Fits(n int) error {
	return g.of.store.fits(g.spec, g.size+int64(n)*g.copy)
}

// Begin returns the state at the start of a reply. With jump, tokens that the grammar forces are
// returned without sampling. Otherwise, when each token must be sampled for its logprob, the mask
// allows only the forced token, and the reply is the same. The error is ErrBusy if other replies'
// states take the memory.
func (g *Grammar) Begin(l Preamble, jump bool) (*State, error) {
	if err := g.of.store.alloc(g.copy); err != nil {
		return nil, err
	}
	g.mu.Lock()
	m, err := g.first.Clone()
	g.mu.Unlock()
	if err != nil {
		g.of.store.dealloc(g.copy)
		return nil, err
	}
	g.of.store.use(g)
	s := &State{g: g, m: m, jump: jump, preamble: newPreambleWatch(g.of.tok, l), fresh: true, taken: g.copy}
	s.mask = append([]uint32(nil), g.mask...)
	s.mine.Store(true)
	return s, nil
}
