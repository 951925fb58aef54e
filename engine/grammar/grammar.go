// Package grammar holds what a reply may say to a schema, a regular expression or a
// grammar: compiled once, followed token by token, with masks that are ready when the
// next step is made.
package grammar

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

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
	keepBytes     = 2 << 20          // of their sources, which what they take grows with
)

// Compiler compiles grammars for one model. It may be used from any goroutine.
type Compiler struct {
	tok *tokenizer.Tokenizer
	opt tokenizer.GrammarOptions

	build sync.Once // of env, which takes a second for a large vocabulary: with the first grammar
	env   *tokenizer.GrammarEnv
	wrong error

	budget    time.Duration                     // of one grammar
	try       func(context.Context, Spec) error // nil: nothing is tried
	trying    chan struct{}                     // as many at once
	compiling chan struct{}                     // and as many of these
	masks     chan struct{}
	cache     cache
}

// NewCompiler makes the compiler of a model with that many logits, whose replies end
// with one of eos.
func NewCompiler(t *tokenizer.Tokenizer, vocab int, eos []int32) *Compiler {
	return &Compiler{
		tok: t, opt: tokenizer.GrammarOptions{VocabSize: vocab, EOS: eos},
		budget:    compileBudget,
		trying:    make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		compiling: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		masks:     make(chan struct{}, runtime.GOMAXPROCS(0)),
		cache:     cache{byKey: map[Spec]*Grammar{}},
	}
}

// TryWith has grammars that are not plain compiled elsewhere first, where it can be stopped:
// the library goes on until it is done. It is called before the first Compile.
func (c *Compiler) TryWith(f func(context.Context, Spec) error) { c.try = f }

func (c *Compiler) environment() (*tokenizer.GrammarEnv, error) {
	c.build.Do(func() { c.env, c.wrong = tokenizer.NewGrammarEnv(c.tok, c.opt) })
	return c.env, c.wrong
}

// Compile returns a grammar, from memory when it was asked for lately. What the
// compiler refuses, or cannot do within its budget, is an *Error; another error is ErrBusy,
// ctx's, or one of the tokenizer.
func (c *Compiler) Compile(ctx context.Context, s Spec) (*Grammar, error) {
	if g := c.cache.get(s); g != nil {
		return g, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.budget, ErrBusy)
	defer cancel()
	done, err := c.trial(ctx, s)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := take(ctx, c.compiling); err != nil {
		return nil, err
	}
	if g := c.cache.get(s); g != nil { // made while this one waited
		<-c.compiling
		return g, nil
	}
	type made struct {
		g   *Grammar
		err error
	}
	out := make(chan made, 1)
	go func() {
		g, err := c.compile(s)
		<-c.compiling
		out <- made{g, err}
	}()
	select {
	case m := <-out:
		return m.g, m.err
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, ErrBusy) {
			return nil, err
		}
		return nil, &Error{s.Kind, fmt.Sprintf("it takes longer than %v to compile; make it smaller", c.budget)}
	}
}

// ErrBusy says that so many grammars are compiled that one could not begin.
var ErrBusy = errors.New("too many grammars wait to be compiled")

// take waits for room in a queue.
func take(ctx context.Context, queue chan struct{}) error {
	select {
	case queue <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// trial tries what is not plain, and keeps the next from that until done is called, when
// the grammar is in the cache. Plain grammars do not wait for those that are not.
func (c *Compiler) trial(ctx context.Context, s Spec) (done func(), err error) {
	if c.try == nil || plain(s) {
		return func() {}, nil
	}
	if err := take(ctx, c.trying); err != nil {
		return nil, err
	}
	done = func() { <-c.trying }
	if c.cache.get(s) != nil {
		return done, nil
	}
	if err = c.try(ctx, s); err == nil {
		return done, nil
	}
	done()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, refusal(s, err)
}

func (c *Compiler) compile(s Spec) (*Grammar, error) {
	env, err := c.environment()
	if err != nil {
		return nil, err
	}
	m, err := env.Compile(s)
	if err != nil {
		return nil, refusal(s, err)
	}
	g := &Grammar{of: c, spec: s, first: m, mask: make([]uint32, env.MaskWords())}
	if err := errors.Join(m.Mask(g.mask), m.Probe(env.MaskWords())); err != nil {
		m.Close()
		return nil, refusal(s, err)
	}
	c.cache.put(s, g)
	return g, nil
}

const (
	plainBytes = 4 << 10
	plainTimes = 4096 // repetitions within repetitions
)

// plain says that a grammar is so small that the library's own limits bound what it
// costs to a fraction of a second: a short source with small numbers.
func plain(s Spec) bool {
	if len(s.Source) > plainBytes || strings.Contains(s.Source, "multipleOf") {
		return false
	}
	times := 1
	for i := 0; i < len(s.Source); i++ {
		n := 0
		for n < 9 && i+n < len(s.Source) && s.Source[i+n] >= '0' && s.Source[i+n] <= '9' {
			n++
		}
		if n > 3 {
			return false
		}
		if v, err := strconv.Atoi(s.Source[i : i+n]); err == nil && v > 1 && i > 0 && strings.IndexByte("{, ", s.Source[i-1]) >= 0 && s.Source[i+n:] != "" && strings.IndexByte(",} ", s.Source[i+n]) >= 0 {
			if times *= v; times > plainTimes {
				return false
			}
		}
		i += n
	}
	return true
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

// Grammar is a compiled grammar. It may be used from any goroutine.
type Grammar struct {
	of   *Compiler
	spec Spec
	mask []uint32 // of the first token

	mu    sync.Mutex
	first *tokenizer.Matcher // at the start; only cloned
}

// Begin is the state at the start of a reply. With jump tokens that the grammar forces
// come without a draw; otherwise, where each is to be drawn for its logprob, the mask
// leaves nothing but them, so that the reply is the same.
func (g *Grammar) Begin(l Lead, jump bool) (*State, error) {
	g.mu.Lock()
	m, err := g.first.Clone()
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s := &State{g: g, m: m, jump: jump, lead: newWatch(g.of.tok, l), fresh: true}
	s.mask = append([]uint32(nil), g.mask...)
	s.mine.Store(true)
	return s, nil
}

// cache remembers the grammars that were used last.
type cache struct {
	mu    sync.Mutex
	byKey map[Spec]*Grammar
	order []Spec // the latest last
	bytes int    // of their sources
}

func (c *cache) get(s Spec) *Grammar {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.byKey[s]
	if g != nil {
		c.touch(s)
	}
	return g
}

func (c *cache) touch(s Spec) {
	for i, k := range c.order {
		if k == s {
			c.order = append(c.order[:i], c.order[i+1:]...)
			break
		}
	}
	c.order = append(c.order, s)
}

func (c *cache) put(s Spec, g *Grammar) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[s] == nil {
		c.bytes += len(s.Source)
	}
	c.byKey[s] = g
	c.touch(s)
	for len(c.order) > keep || c.bytes > keepBytes && len(c.order) > 1 {
		// its matcher goes when nobody can clone it any more
		c.bytes -= len(c.order[0].Source)
		delete(c.byKey, c.order[0])
		c.order = c.order[1:]
	}
}
