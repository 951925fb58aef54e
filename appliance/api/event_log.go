package api

import (
	"bytes"
	"compress/flate"
	"io"
	"sync"
)

// eventLog is what the stream of a response in the background has told so far. Any
// number of readers follow it.
type eventLog struct {
	mu    sync.Mutex
	text  []byte
	ended bool
	more  chan struct{} // closed when something has been added
}

func newEventLog() *eventLog { return &eventLog{more: make(chan struct{})} }

// add appends whole events; the last ones end the log.
func (l *eventLog) add(events []byte, last bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text, l.ended = append(l.text, events...), last
	close(l.more)
	l.more = make(chan struct{})
}

// from is what stands behind byte at, whether it is the end, and what is closed when
// there is more. What it returns does not change.
func (l *eventLog) from(at int) (events []byte, ended bool, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text[at:len(l.text):len(l.text)], l.ended, l.more
}

// after is the part of the events that comes behind those with sequence numbers 0 to
// n; each number stands for one event.
func after(events []byte, n int) []byte {
	for ; n >= 0; n-- {
		end := bytes.Index(events, []byte("\n\n"))
		if end < 0 {
			return nil
		}
		events = events[end+2:]
	}
	return events
}

// packed are events as they are stored: they repeat themselves.
func packed(events []byte) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed) // the level is a valid one
	_, _ = w.Write(events)                       // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

func unpacked(b []byte) ([]byte, error) { return io.ReadAll(flate.NewReader(bytes.NewReader(b))) }
