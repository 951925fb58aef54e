package backend

import "fmt"

// SwapError says why there is no room on disk for the Swap arena.
type SwapError struct {
	Dir  string
	Need int64 // bytes
	Free int64 // bytes, as the file system says; 0 where that is not the reason
	Err  error // what the system said; nil where Free is the reason
}

func (e *SwapError) Error() string {
	const remedy = "lower memory.swapSpace, or set TMPDIR to a directory on a disk with room"
	if e.Err != nil {
		return fmt.Sprintf("swap space of %d bytes in %s: %v; %s", e.Need, e.Dir, e.Err, remedy)
	}
	return fmt.Sprintf("swap space of %d bytes in %s: the file system has %d free; %s", e.Need, e.Dir, e.Free, remedy)
}

func (e *SwapError) Unwrap() error { return e.Err }

// Check says that a move stays inside the classes, the KV arena and the Swap
// arena, of so many bytes.
func (m PageMove) Check(classes []KVClass, kv, swap int64) error {
	if m.Class < 0 || m.Class >= len(classes) {
		return &StepError{"Moves", fmt.Sprintf("class %d of %d", m.Class, len(classes))}
	}
	c := classes[m.Class]
	for _, at := range []struct {
		what string
		n    int32
		size int64
	}{{"page", m.Page, kv}, {"slot", m.Slot, swap}} {
		if at.n < 0 || c.Address(at.n)+c.PageBytes() > at.size {
			return &StepError{"Moves", fmt.Sprintf("%s %d of class %s is outside of the arena of %d bytes", at.what, at.n, c.Name, at.size)}
		}
	}
	return nil
}
