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

// eventLog holds the events of a background response's stream. Any number of readers
// can follow it. All but the last events are compressed: they repeat much text, and a
// long reply then takes little memory.
type eventLog struct {
	mu     sync.Mutex
	packed [][]byte // compressed segments
	starts []int    // offset of each segment, in bytes of uncompressed events
	tail   []byte   // events after the segments
	at     int      // offset of tail
	ended  bool
	more   chan struct{} // closed by the next add
}

// segment is the minimum size of a segment, in bytes of uncompressed events.
const segment = 64 << 10

func newEventLog() *eventLog { return &eventLog{more: make(chan struct{})} }

// add appends complete events. If last is set, the log ends with them.
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

// from returns complete events from offset at on, not necessarily all; whether the log
// ends with them; and a channel that is closed when more events exist. The returned
// bytes never change.
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
	now := make(chan struct{}) // closed: more events exist already
	close(now)
	return events[at-l.starts[i]:], false, now, nil
}

// encode returns the whole log and its last events in the form that is stored:
// compressed segments, each after its length in 4 bytes. It returns nil without a log.
func (l *eventLog) encode(last []byte) (out []byte) {
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

// segments calls give with the events of each segment of a stored log.
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

// skipEvents drops the first leave events. It returns the rest, and how many events
// are still to be dropped.
func skipEvents(events []byte, leave int) ([]byte, int) {
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
	w, _ := flate.NewWriter(&b, flate.BestSpeed) // no error: the level is valid
	_, _ = w.Write(events)                       // no error: b is a bytes.Buffer
	_ = w.Close()
	return b.Bytes()
}

func unpack(b []byte) ([]byte, error) { return io.ReadAll(flate.NewReader(bytes.NewReader(b))) }
