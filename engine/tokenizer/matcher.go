package tokenizer

import "unsafe"

// Matcher follows one text through a grammar. It belongs to one goroutine.
type Matcher struct {
	obj *lease
}

func newMatcher(p unsafe.Pointer) *Matcher {
	return &Matcher{newLease(p, "the matcher", matcherFree)}
}

// Clone returns a second matcher in the same state.
func (m *Matcher) Clone() (*Matcher, error) {
	p, err := m.obj.hold()
	if err != nil {
		return nil, err
	}
	defer m.obj.release()
	c, err := matcherClone(p)
	if err != nil {
		return nil, err
	}
	return newMatcher(c), nil
}

// Bytes returns how many bytes are allocated for the matcher now; it grows while the matcher
// follows a text. What a clone shares with its original counts in the original. A closed
// matcher has none.
func (m *Matcher) Bytes() int64 {
	p, err := m.obj.hold()
	if err != nil {
		return 0
	}
	defer m.obj.release()
	return matcherBytes(p)
}

// Close frees the matcher.
func (m *Matcher) Close() { m.obj.close() }

// Mask sets bit id%32 of mask[id/32] for every id that may come next, and clears
// all others. Where the text is complete and nothing may follow, the EOS ids are
// what may come next. mask must have MaskWords words.
func (m *Matcher) Mask(mask []uint32) error {
	p, err := m.obj.hold()
	if err != nil {
		return err
	}
	defer m.obj.release()
	return matcherMask(p, mask)
}

// Advance takes the ids that came next. An id that the grammar does not allow is
// an *Error of KindGrammar, after which the matcher is of no more use.
func (m *Matcher) Advance(ids ...int32) error {
	p, err := m.obj.hold()
	if err != nil {
		return err
	}
	defer m.obj.release()
	return matcherAdvance(p, ids)
}

// Accepts returns how many of ids, from the first, the grammar allows next. The
// matcher does not move.
func (m *Matcher) Accepts(ids []int32) (int, error) {
	p, err := m.obj.hold()
	if err != nil {
		return 0, err
	}
	defer m.obj.release()
	return matcherAccepts(p, ids)
}

// Forced returns the ids that must come next, if there are any.
func (m *Matcher) Forced() ([]int32, error) {
	p, err := m.obj.hold()
	if err != nil {
		return nil, err
	}
	defer m.obj.release()
	return matcherForced(p)
}

// Rollback takes the last n ids back.
func (m *Matcher) Rollback(n int) error {
	if n < 0 {
		return failure(KindArgument, 0, "a rollback of less than no token")
	}
	p, err := m.obj.hold()
	if err != nil {
		return err
	}
	defer m.obj.release()
	return matcherRollback(p, n)
}

// Done reports that the grammar allows nothing more: EOS came, or the text is
// complete and cannot go on.
func (m *Matcher) Done() bool {
	_, stopped, err := m.state()
	return err != nil || stopped
}

// Accepting reports that the text may end here.
func (m *Matcher) Accepting() (bool, error) {
	accepting, _, err := m.state()
	return accepting, err
}

func (m *Matcher) state() (accepting, stopped bool, err error) {
	p, err := m.obj.hold()
	if err != nil {
		return false, false, err
	}
	defer m.obj.release()
	return matcherState(p)
}
