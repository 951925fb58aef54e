package grammar

import (
	"sync"
	"sync/atomic"
	"time"

	"vapp.dev/engine/tokenizer"
)

// State follows one reply through its grammar. Only the engine's loop uses it. A goroutine computes
// the mask of the next token as soon as the previous token is known.
type State struct {
	g        *Grammar
	m        *tokenizer.Matcher
	jump     bool
	preamble preambleWatch
	fresh    bool    // before the first token
	queue    []int32 // forced tokens not sampled yet

	made sync.WaitGroup // done when mask, err and took are set
	mine atomic.Bool    // a goroutine has started to compute them
	mask []uint32
	err  error
	took time.Duration // time to compute mask

	taken int64 // bytes allocated from the budget

	times Times
}

// Times are the costs of a grammar since the previous call of State.Times.
type Times struct {
	Mask time.Duration // to compute the last mask, in parallel to the loop; 0: none
	Loop time.Duration // in the loop: to follow tokens and wait for masks
}

// Times returns the costs since the previous call.
func (s *State) Times() Times {
	out := s.times
	s.times = Times{}
	return out
}

// Take advances by a generated token. forced are the tokens that must follow, which the state has
// already taken; ended reports that nothing may follow. After an error the state cannot be used any
// more.
func (s *State) Take(token int32) (forced []int32, ended bool, err error) {
	defer s.clock(time.Now())
	s.wait()
	if s.err != nil {
		return nil, false, s.err
	}
	fresh := s.fresh
	s.fresh = false
	switch {
	case s.preamble.free:
		if !s.preamble.take(token) {
			return nil, false, nil
		}
		s.preamble.free = false
	case fresh && token == s.preamble.open:
		s.preamble.free = true
		return nil, false, nil
	case len(s.queue) > 0 && s.queue[0] == token:
		s.queue = s.queue[1:]
		return nil, len(s.queue) == 0 && s.next(), nil
	default:
		if s.err = s.charge(s.m.Advance(token)); s.err != nil {
			return nil, false, s.err
		}
	}
	return s.force()
}

// force takes the tokens that must come next.
func (s *State) force() (forced []int32, ended bool, err error) {
	if s.m.Done() {
		return nil, true, nil
	}
	ids, err := s.m.Forced()
	if err == nil && len(ids) > 0 {
		err = s.m.Advance(ids...)
	}
	if s.err = s.charge(err); s.err != nil {
		return nil, false, s.err
	}
	if !s.jump && len(ids) > 0 {
		s.queue = ids
		return nil, false, nil
	}
	return ids, s.next(), nil
}

// next reports whether the reply has ended; if not, it starts computing the mask.
func (s *State) next() (ended bool) {
	if s.m.Done() {
		return true
	}
	s.made.Add(1)
	s.mine.Store(false)
	go func() {
		s.g.of.masks <- struct{}{}
		defer func() { <-s.g.of.masks }()
		s.make()
	}()
	return false
}

// make computes the mask unless another goroutine does. If its goroutine has no processor yet, the
// loop computes the mask instead of waiting.
func (s *State) make() {
	if !s.mine.CompareAndSwap(false, true) {
		return
	}
	defer s.made.Done()
	begun := time.Now()
	s.err = s.charge(s.m.Mask(s.mask))
	s.took = time.Since(begun)
}

// Mask writes the tokens that may come next to words, one bit per id, and reports whether there is
// a constraint now. If the grammar cannot be followed any more it sets no bit; Err returns the
// reason.
func (s *State) Mask(words []uint32) bool {
	defer s.clock(time.Now())
	s.wait()
	if s.preamble.free {
		s.g.of.allExceptEOS(words)
		return true
	}
	clear(words)
	if s.err != nil {
		return true
	}
	if len(s.queue) > 0 {
		set(words, s.queue[0])
		return true
	}
	copy(words, s.mask)
	if s.fresh && s.preamble.open >= 0 {
		set(words, s.preamble.open)
	}
	return true
}

// wait waits for the mask.
func (s *State) wait() {
	s.make()
	s.made.Wait()
	if s.took > 0 {
		s.times.Mask, s.took = s.took, 0
	}
}

func (s *State) clock(begun time.Time) { s.times.Loop += time.Since(begun) }

// allExceptEOS sets the bits of all tokens except the EOS tokens.
func (c *Compiler) allExceptEOS(words []uint32) {
	for i := range words {
		words[i] = ^uint32(0)
	}
	for _, id := range c.opt.EOS {
		if int(id/32) < len(words) {
			words[id/32] &^= 1 << (id % 32)
		}
	}
}

func set(words []uint32, id int32) {
	if int(id/32) < len(words) {
		words[id/32] |= 1 << (id % 32)
	}
}

// Err returns why the grammar cannot be followed any more, an *Error or ErrBusy; nil if it can.
func (s *State) Err() error {
	s.wait()
	return s.err
}

// charge allocates the bytes by which the matcher grew in a call. It returns the call's error as
// one of this package, or an error if the budget does not allow the growth.
func (s *State) charge(err error) error {
	if err != nil {
		return refusal(s.g.spec, err)
	}
	more := memory(s.m, s.mask) - s.taken
	if more <= 0 {
		return nil
	}
	more = (more/growth + 1) * growth
	s.taken += more
	return s.g.of.store.charge(s.g, more, s.taken)
}

// growth is the unit, in bytes, in which a state allocates from the budget.
const growth = 64 << 10

// Close frees the state once its mask is computed. It does not wait.
func (s *State) Close() {
	go func() {
		if s.mine.CompareAndSwap(false, true) {
			s.made.Done() // the mask is not needed
		}
		s.made.Wait()
		s.m.Close()
		s.g.of.store.dealloc(s.taken)
		s.g.Release()
	}()
}
