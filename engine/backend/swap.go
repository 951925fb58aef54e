package backend

import "fmt"

// SwapError is the reason why the Swap arena does not fit on disk.
type SwapError struct {
	Dir  string
	Need int64 // bytes
	Free int64 // bytes that the file system reports as free; 0 if Err is the reason
	Err  error // the system's error; nil if Free is the reason
}

func (e *SwapError) Error() string {
	const remedy = "lower memory.swapSpace, or set TMPDIR to a directory on a disk with free space"
	if e.Err != nil {
		return fmt.Sprintf("swap space of %d bytes in %s: %v; %s", e.Need, e.Dir, e.Err, remedy)
	}
	return fmt.Sprintf("swap space of %d bytes in %s: the file system has %d free; %s", e.Need, e.Dir, e.Free, remedy)
}

func (e *SwapError) Unwrap() error { return e.Err }

// Check returns a *StepError unless the move stays inside the classes and the KV and Swap
// arenas, whose sizes are kv and swap bytes.
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
