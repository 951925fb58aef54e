package grammar

import (
	"sync"
	"sync/atomic"
	"time"

	"vapp.dev/engine/tokenizer"
)

// State is where one reply stands in its grammar. The engine's loop alone uses it; the
// mask of the next token is computed beside the loop, from the moment that the token
// before it is known.
type State struct {
	g     *Grammar
	m     *tokenizer.Matcher
	jump  bool
	lead  watch
	fresh bool    // no token has come
	queue []int32 // forced tokens that are still to be drawn

	made sync.WaitGroup // mask, err and took are there
	mine atomic.Bool    // somebody makes them, or has
	mask []uint32
	err  error
	took time.Duration // to make mask

	taken int64 // bytes of the budget

	times Times
}

// Times are what a grammar cost since they were asked for.
type Times struct {
	Mask time.Duration // to make the last mask, beside the loop; 0: none was made
	Loop time.Duration // of the loop: to follow tokens, and to wait for masks
}

// Times returns what the state cost since the last call.
func (s *State) Times() Times {
	out := s.times
	s.times = Times{}
	return out
}

// Take moves on by the token that came. forced are tokens that follow it without a
// draw, and are taken too; ended says that nothing may follow. After an error the state
// is of no more use.
func (s *State) Take(token int32) (forced []int32, ended bool, err error) {
	defer s.clock(time.Now())
	s.wait()
	if s.err != nil {
		return nil, false, s.err
	}
	fresh := s.fresh
	s.fresh = false
	switch {
	case s.lead.free:
		if !s.lead.take(token) {
			return nil, false, nil
		}
		s.lead.free = false
	case fresh && token == s.lead.open:
		s.lead.free = true
		return nil, false, nil
	case len(s.queue) > 0 && s.queue[0] == token:
		s.queue = s.queue[1:]
		return nil, len(s.queue) == 0 && s.next(), nil
	default:
		if s.err = s.grown(s.m.Advance(token)); s.err != nil {
			return nil, false, s.err
		}
	}
	return s.force()
}

// force takes the tokens that must come now.
func (s *State) force() (forced []int32, ended bool, err error) {
	if s.m.Done() {
		return nil, true, nil
	}
	ids, err := s.m.Forced()
	if err == nil && len(ids) > 0 {
		err = s.m.Advance(ids...)
	}
	if s.err = s.grown(err); s.err != nil {
		return nil, false, s.err
	}
	if !s.jump && len(ids) > 0 {
		s.queue = ids
		return nil, false, nil
	}
	return ids, s.next(), nil
}

// next reports the end, or has the mask made.
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

// make makes the mask, unless somebody else does: the loop does not wait for a processor
// to become free for another goroutine.
func (s *State) make() {
	if !s.mine.CompareAndSwap(false, true) {
		return
	}
	defer s.made.Done()
	begun := time.Now()
	s.err = s.grown(s.m.Mask(s.mask))
	s.took = time.Since(begun)
}

// Mask writes the tokens that may come next, one bit an id, into words, and reports
// whether there is a constraint now. Where the grammar cannot be followed any more no bit
// is set; Err says why.
func (s *State) Mask(words []uint32) bool {
	defer s.clock(time.Now())
	s.wait()
	if s.lead.free {
		s.g.of.butEOS(words)
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
	if s.fresh && s.lead.open >= 0 {
		set(words, s.lead.open)
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

// butEOS sets the bits of all tokens but those that end a reply.
func (c *Compiler) butEOS(words []uint32) {
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

// Err is why the grammar cannot be followed any more, an *Error or ErrBusy; nil while it can.
func (s *State) Err() error {
	s.wait()
	return s.err
}

// grown returns the error of a call of the matcher as one of this package, or why the matcher
// may not have grown as it did in the call.
func (s *State) grown(err error) error {
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

// growth is the step in which a state takes bytes from the budget.
const growth = 64 << 10

// Close frees the state, when its mask is done. It does not wait.
func (s *State) Close() {
	go func() {
		if s.mine.CompareAndSwap(false, true) {
			s.made.Done() // nobody needs it
		}
		s.made.Wait()
		s.m.Close()
		s.g.of.store.give(s.taken)
		s.g.Release()
	}()
}
