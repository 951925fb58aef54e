// Package kv keeps the books of KV memory: which classes of page there are, how
// slabs are lent to them, which pages a sequence has, and which hold a prefix
// that another sequence may reuse. It deals in integers only and holds no
// device memory.
package kv

import "fmt"

// Kind says how a class of page grows with its sequence.
type Kind uint8

// The kinds.
const (
	Full     Kind = iota // every token's K and V stay
	Window               // the last Window tokens stay
	State                // one page a sequence, whatever its length
	Snapshot             // pages of states after prefixes that other sequences begin behind
)

// String is the word that plans print.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

var kindNames = [...]string{"full", "window", "state", "checkpoint"}

// Spec is one class of page.
type Spec struct {
	Name      string
	Kind      Kind
	PageBytes int64
	BlockSize int // tokens a page holds; 0 for State; of a Checkpoint what its positions are multiples of
	// Window is how many tokens a query sees, itself included; 0 unless Kind is
	// Window.
	Window int
	// Ahead is how many tokens at most a step computes that may be taken back after
	// it, so that the window does not pass them; 0 unless Kind is Window.
	Ahead int
}

// SpecError says which field of which class is wrong.
type SpecError struct {
	Class, Field string
	Value        int64
	Want         string
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("kv class %s: %s is %d, want %s", e.Class, e.Field, e.Value, e.Want)
}

// Limits that keep every product of this package inside 63 bits.
const (
	maxPageBytes = 1 << 42
	maxBlockSize = 1 << 20
	maxWindow    = 1 << 31
	maxClasses   = 64
)

func (s Spec) check() error {
	wrong := func(field string, v int64, want string) error {
		return &SpecError{s.Name, field, v, want}
	}
	switch {
	case s.Kind > Snapshot:
		return wrong("kind", int64(s.Kind), "full, window, state or checkpoint")
	case s.PageBytes < 1 || s.PageBytes > maxPageBytes:
		return wrong("page bytes", s.PageBytes, "1 to 2^42")
	case s.Kind != State && (s.BlockSize < 1 || s.BlockSize > maxBlockSize):
		return wrong("block size", int64(s.BlockSize), "1 to 2^20 tokens")
	case s.Kind == State && s.BlockSize != 0:
		return wrong("block size", int64(s.BlockSize), "0 for a state")
	case s.Kind == Window && (s.Window < 1 || s.Window > maxWindow):
		return wrong("window", int64(s.Window), "1 to 2^31 tokens")
	case s.Kind != Window && s.Window != 0:
		return wrong("window", int64(s.Window), "0 for a class that is no window")
	case s.Kind != Window && s.Ahead != 0:
		return wrong("tokens ahead", int64(s.Ahead), "0 for a class that is no window")
	case s.Ahead < 0 || s.Ahead > 0 && s.Ahead > s.Window-2:
		return wrong("tokens ahead", int64(s.Ahead), "0 to two less than the window: a step stores no position that its last one does not see")
	}
	return nil
}

// blocks is how many blocks n tokens take.
func (s Spec) blocks(n int) int {
	switch s.Kind {
	case State:
		return 1
	case Snapshot:
		return 0
	}
	return n/s.BlockSize + (n%s.BlockSize+s.BlockSize-1)/s.BlockSize
}

// kept is the first block that a query at position pos still reads.
func (s Spec) firstBlock(pos int) int {
	if s.Kind != Window || pos < s.Window {
		return 0
	}
	return (pos - s.Window + 1) / s.BlockSize
}
