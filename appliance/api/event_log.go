package api

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"sort"
	"sync"
)

// eventLog is what the stream of a response in the background has told so far. Any
// number of readers follow it. Events repeat themselves: all but the last ones are
// packed, so that a long reply takes little memory.
type eventLog struct {
	mu     sync.Mutex
	packed [][]byte // segments
	starts []int    // where each begins, in bytes of events
	tail   []byte   // what comes after them
	at     int      // where it begins
	ended  bool
	more   chan struct{} // closed when something has been added
}

// segment is how many bytes of events are packed together, at least.
const segment = 64 << 10

func newEventLog() *eventLog { return &eventLog{more: make(chan struct{})} }

// add appends whole events; the last ones end the log.
func (l *eventLog) add(events []byte, last bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tail, l.ended = append(l.tail, events...), last; len(l.tail) >= segment && !last {
		l.packed, l.starts = append(l.packed, pack(l.tail)), append(l.starts, l.at)
		l.tail, l.at = nil, l.at+len(l.tail)
	}
	close(l.more)
	l.more = make(chan struct{})
}

// from is a piece of what stands behind byte at, in whole events, whether it is the
// end, and what is closed when there is more. What it returns does not change.
func (l *eventLog) from(at int) (events []byte, ended bool, more <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at >= l.at {
		return l.tail[at-l.at : len(l.tail) : len(l.tail)], l.ended, l.more, nil
	}
	i := sort.SearchInts(l.starts, at+1) - 1
	events, err = unpack(l.packed[i])
	if err != nil {
		return nil, false, nil, err
	}
	now := make(chan struct{}) // there is more already
	close(now)
	return events[at-l.starts[i]:], false, now, nil
}

// stored is the whole log, with its last events, as it is stored: packed segments,
// each behind its length. nil: there is no log.
func (l *eventLog) stored(last []byte) (out []byte) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.packed {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(p))), p...)
	}
	p := pack(append(l.tail[:len(l.tail):len(l.tail)], last...))
	return append(binary.BigEndian.AppendUint32(out, uint32(len(p))), p...)
}

// segments calls give with the events of each stored segment.
func segments(b []byte, give func([]byte) error) error {
	for len(b) > 0 {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
			return errors.New("the stored events end within a segment")
		}
		n := 4 + int(binary.BigEndian.Uint32(b))
		events, err := unpack(b[4:n])
		if err == nil {
			err = give(events)
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// behind leaves the first events out, and says how many are still to be left out.
func behind(events []byte, leave int) ([]byte, int) {
	for ; leave > 0 && len(events) > 0; leave-- {
		end := bytes.Index(events, []byte("\n\n"))
		if end < 0 {
			return nil, leave
		}
		events = events[end+2:]
	}
	return events, leave
}

func pack(events []byte) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed) // the level is a valid one
	_, _ = w.Write(events)                       // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

func unpack(b []byte) ([]byte, error) { return io.ReadAll(flate.NewReader(bytes.NewReader(b))) }
