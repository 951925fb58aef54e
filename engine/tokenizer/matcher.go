package tokenizer

import "unsafe"

// Matcher follows one text through a grammar. Only one goroutine may use it.
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

// Bytes returns the allocated bytes of the matcher, which grow as it follows a text. Memory shared
// between a clone and its original counts for the original. A closed matcher has 0.
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

// Mask sets bit id%32 of mask[id/32] for every id that may come next, and clears all others. If the
// text is complete and nothing may follow, the EOS ids are allowed. mask must have MaskWords words.
func (m *Matcher) Mask(mask []uint32) error {
	p, err := m.obj.hold()
	if err != nil {
		return err
	}
	defer m.obj.release()
	return matcherMask(p, mask)
}

// Advance appends ids to the text. An id that the grammar does not allow is an *Error of
// KindGrammar, after which the matcher cannot be used any more.
func (m *Matcher) Advance(ids ...int32) error {
	p, err := m.obj.hold()
	if err != nil {
		return err
	}
	defer m.obj.release()
	return matcherAdvance(p, ids)
}

// Accepts returns how many of ids, counted from the first, the grammar allows next. It does not
// change the matcher's state.
func (m *Matcher) Accepts(ids []int32) (int, error) {
	p, err := m.obj.hold()
	if err != nil {
		return 0, err
	}
	defer m.obj.release()
	return matcherAccepts(p, ids)
}

// Forced returns the ids that must come next, if any.
func (m *Matcher) Forced() ([]int32, error) {
	p, err := m.obj.hold()
	if err != nil {
		return nil, err
	}
	defer m.obj.release()
	return matcherForced(p)
}

// Rollback removes the last n ids.
func (m *Matcher) Rollback(n int) error {
	if n < 0 {
		return failure(KindArgument, 0, "cannot roll back a negative number of tokens")
	}
	p, err := m.obj.hold()
	if err != nil {
		return err
	}
	defer m.obj.release()
	return matcherRollback(p, n)
}

// Done reports whether the grammar allows nothing more: EOS came, or the text is complete and
// cannot continue.
func (m *Matcher) Done() bool {
	_, stopped, err := m.state()
	return err != nil || stopped
}

// Accepting reports whether the text may end here.
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
