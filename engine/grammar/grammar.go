// Package grammar holds what a reply may say to a schema, a regular expression or a
// grammar: compiled once, followed token by token, with masks that are ready when the
// next step is made.
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

// Spec is a grammar in words: one of the kinds of package tokenizer, and its source.
type Spec = tokenizer.GrammarSpec

// Error says why a grammar is not taken, in the compiler's words.
type Error struct {
	Kind string // of the grammar
	Text string
}

func (e *Error) Error() string { return e.Kind + ": " + e.Text }

const (
	compileBudget = 10 * time.Second // of one grammar, the wait for others included
	keep          = 64               // compiled grammars that are remembered
	keepBytes     = 2 << 20          // of their sources
	maxWaiting    = 128              // plain grammars that wait for a place
	maxPlaces     = 8                // so that compilations leave memory to each other
)

// Compiler compiles grammars for one model. It may be used from any goroutine.
type Compiler struct {
	tok *tokenizer.Tokenizer
	opt tokenizer.GrammarOptions

	build sync.Once // of env, which takes a second for a large vocabulary: with the first grammar
	env   *tokenizer.GrammarEnv
	wrong error

	budget    time.Duration   // of one grammar
	try       Try             // nil: nothing is tried
	compiling *fairqueue.Gate // for plain grammars
	masks     chan struct{}
	store     store
}

// Try tries a grammar that is not plain where it can be stopped; cost is an estimate of the
// work, in bytes of source. It asks unneeded when the grammar's turn has come, and tries nothing
// if it is true. It returns the bytes of memory that the grammar took. The grammar keeps its
// place until leave is called.
type Try func(ctx context.Context, s Spec, cost int, unneeded func() bool) (leave func(), bytes int64, err error)

// NewCompiler makes the compiler of a model with that many logits, whose replies end
// with one of eos.
func NewCompiler(t *tokenizer.Tokenizer, vocab int, eos []int32) *Compiler {
	return &Compiler{
		tok: t, opt: tokenizer.GrammarOptions{VocabSize: vocab, EOS: eos},
		budget:    compileBudget,
		compiling: fairqueue.NewGate(places(), maxWaiting),
		masks:     make(chan struct{}, runtime.GOMAXPROCS(0)),
		store:     store{byKey: map[Spec]*Grammar{}},
	}
}

// places returns how many plain grammars are compiled at once.
func places() int { return min(maxPlaces, max(1, runtime.GOMAXPROCS(0)/2)) }

// TryWith has grammars that are not plain tried first: the library cannot be stopped. It is
// called before the first Compile.
func (c *Compiler) TryWith(f Try) { c.try = f }

// Limit bounds the bytes of all grammars and states that are alive; without it nothing does. It
// is called before the first Compile.
func (c *Compiler) Limit(bytes int64) { c.store.budget = bytes }

// Used returns how many bytes the grammars and states that are alive take.
func (c *Compiler) Used() int64 {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.store.used
}

func (c *Compiler) environment() (*tokenizer.GrammarEnv, error) {
	c.build.Do(func() { c.env, c.wrong = tokenizer.NewGrammarEnv(c.tok, c.opt) })
	return c.env, c.wrong
}

// Compile returns a grammar, from memory when it was asked for lately; the caller calls its
// Release. What the compiler refuses, or cannot do within its budgets of time and memory, is an
// *Error; another error is ErrBusy, ctx's, or one of the tokenizer.
func (c *Compiler) Compile(ctx context.Context, s Spec) (*Grammar, error) {
	if g := c.store.get(s); g != nil {
		return g, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.budget, ErrBusy)
	defer cancel()
	p, err := c.place(ctx, s)
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

// reserve takes the bytes of a compilation from the budget.
func (c *Compiler) reserve(s Spec, bytes int64) error {
	if err := c.store.fits(s, bytes); err != nil {
		return err
	}
	return c.store.take(bytes)
}

// ErrBusy says that a grammar has no place beside those of other requests: too many wait to be
// compiled, or those in use take all memory that there is for grammars.
var ErrBusy = errors.New("the grammars of other requests take all places or memory")

// place is a place to compile a grammar in.
type place struct {
	leave func()
	bytes int64    // of memory that the compilation takes
	made  *Grammar // compiled while this one waited; nil: none
}

// place waits for a place to compile in, and tries what is not plain. Plain grammars do not
// wait for those that are not. The place is kept until the grammar is in the store, so that
// the next that asks for it finds it there.
func (c *Compiler) place(ctx context.Context, s Spec) (p place, err error) {
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
		return place{}, context.Cause(ctx)
	case errors.Is(err, fairqueue.ErrFull), errors.As(err, &e) && e.Kind == tokenizer.KindBusy:
		return place{}, ErrBusy
	}
	return place{}, refusal(s, err)
}

// compile compiles a grammar for which that many bytes are taken from the budget, and corrects
// them to what the grammar takes.
func (c *Compiler) compile(s Spec, taken int64) (*Grammar, error) {
	g, err := c.make(s)
	if err != nil {
		c.store.give(taken)
		return nil, err
	}
	err = c.store.fits(s, g.size+g.copy)
	if err == nil && g.size > taken {
		err = c.store.take(g.size - taken)
	} else {
		c.store.give(taken - min(g.size, taken))
	}
	if err != nil {
		g.first.Close()
		c.store.give(min(g.size, taken))
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

// inWords says plainly what the library says in its own words.
var inWords = strings.NewReplacer(" <non-verbose/>", "", "NoExtensionBias", "no text satisfies it")

// refusal is an error about the grammar in its own type.
func refusal(s Spec, err error) error {
	var e *tokenizer.Error
	if errors.As(err, &e) && (e.Kind == tokenizer.KindGrammar || e.Kind == tokenizer.KindPanic) {
		return &Error{s.Kind, inWords.Replace(e.Msg)}
	}
	return err
}

// Grammar is a compiled grammar. It may be used from any goroutine until its Release.
type Grammar struct {
	of   *Compiler
	spec Spec
	mask []uint32 // of the first token
	size int64    // bytes that it takes
	copy int64    // bytes that a state at its start takes
	uses int      // of requests, states and calls; of the store

	mu    sync.Mutex
	first *tokenizer.Matcher // at the start; only cloned
}

// Release says that the caller of Compile begins no more states.
func (g *Grammar) Release() { g.of.store.release(g) }

// Hold says that one more caller begins states, who calls Release as well.
func (g *Grammar) Hold() { g.of.store.use(g) }

// Fits returns an *Error if n states at once take more than there is for all grammars.
func (g *Grammar) Fits(n int) error {
	return g.of.store.fits(g.spec, g.size+int64(n)*g.copy)
}

// Begin is the state at the start of a reply. With jump tokens that the grammar forces
// come without a draw; otherwise, where each is to be drawn for its logprob, the mask
// leaves nothing but them, so that the reply is the same. The error is ErrBusy where the
// states of other replies take the memory.
func (g *Grammar) Begin(l Lead, jump bool) (*State, error) {
	if err := g.of.store.take(g.copy); err != nil {
		return nil, err
	}
	g.mu.Lock()
	m, err := g.first.Clone()
	g.mu.Unlock()
	if err != nil {
		g.of.store.give(g.copy)
		return nil, err
	}
	g.of.store.use(g)
	s := &State{g: g, m: m, jump: jump, lead: newWatch(g.of.tok, l), fresh: true, taken: g.copy}
	s.mask = append([]uint32(nil), g.mask...)
	s.mine.Store(true)
	return s, nil
}
