// Package kv allocates the pages of the KV cache. It divides the arena into slabs, assigns
// slabs to classes of pages, gives sequences their page tables, and finds cached pages of a
// prefix for reuse. It must not hold or touch device memory: it handles page numbers only.
// Start reading at Pool in pool.go and Pool.Extend in table.go.
package kv

import "fmt"

// Kind is how the pages of a class grow with their sequence.
type Kind uint8

// The kinds.
const (
	Full     Kind = iota // K and V of every token
	Window               // K and V of the last Window tokens
	Chunk                // K and V of the tokens since the last multiple of Window
	State                // one page of recurrent state for each sequence, whatever its length
	Snapshot             // copies of recurrent states after a prefix, for sequences that share the prefix
)

// String returns the name that plans print.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// kindNames are the names in plans, where a Snapshot is called "checkpoint".
var kindNames = [...]string{"full", "window", "chunk", "state", "checkpoint"}

// Spec is one class of page.
type Spec struct {
	Name      string
	Kind      Kind
	PageBytes int64
	BlockSize int // tokens of a page; 0 for State; of a Snapshot, positions are multiples of it
	// Window is how many tokens a query attends to, itself included, or the size of a Chunk; 0 for
	// other kinds.
	Window int
	// Ahead is the most proposed tokens of a step. The window does not slide past them, since
	// they may be rejected. It is 0 unless Kind is Window.
	Ahead int
}

// SpecError reports an invalid field of a class.
type SpecError struct {
	Class, Field string
	Value        int64
	Want         string
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("kv class %s: %s is %d, want %s", e.Class, e.Field, e.Value, e.Want)
}

// Limits that keep every product in this package within 63 bits.
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
		return wrong("kind", int64(s.Kind), "full, window, chunk, state or checkpoint")
	case s.PageBytes < 1 || s.PageBytes > maxPageBytes:
		return wrong("page bytes", s.PageBytes, "1 to 2^42")
	case s.Kind != State && (s.BlockSize < 1 || s.BlockSize > maxBlockSize):
		return wrong("block size", int64(s.BlockSize), "1 to 2^20 tokens")
	case s.Kind == State && s.BlockSize != 0:
		return wrong("block size", int64(s.BlockSize), "0 for a state")
	case s.bounded() && (s.Window < 1 || s.Window > maxWindow):
		return wrong("window", int64(s.Window), "1 to 2^31 tokens")
	case !s.bounded() && s.Window != 0:
		return wrong("window", int64(s.Window), "0 for a class that is no window or chunk")
	case s.Kind != Window && s.Ahead != 0:
		return wrong("tokens ahead", int64(s.Ahead), "0 for a class that is no window")
	case s.Ahead < 0 || s.Ahead > 0 && s.Ahead > s.Window-2:
		return wrong("tokens ahead", int64(s.Ahead), "0 to two less than the window: a step stores no position that its last one does not see")
	}
	return nil
}

// blocks returns how many blocks n tokens take.
func (s Spec) blocks(n int) int {
	switch s.Kind {
	case State:
		return 1
	case Snapshot:
		return 0
	}
	return n/s.BlockSize + (n%s.BlockSize+s.BlockSize-1)/s.BlockSize
}

// bounded reports whether a sequence keeps at most a window or a chunk of its tokens.
func (s Spec) bounded() bool { return s.Kind == Window || s.Kind == Chunk }

// firstBlock returns the first block that a query at position pos reads.
func (s Spec) firstBlock(pos int) int {
	switch {
	case !s.bounded() || pos < s.Window:
		return 0
	case s.Kind == Chunk:
		return pos / s.Window * s.Window / s.BlockSize
	}
	return (pos - s.Window + 1) / s.BlockSize
}
