package api

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestEventLog checks that readers which start at any time and position get all later
// events exactly once, from the log and from its stored form.
func TestEventLog(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	l, n := newEventLog(), 3000
	var whole bytes.Buffer
	got := make(chan string)
	read := func(leave int) {
		var out []byte
		for at := 0; ; {
			events, ended, more, err := l.from(at)
			if err != nil {
				t.Error(err)
			}
			at += len(events)
			events, leave = skipEvents(events, leave)
			if out = append(out, events...); ended {
				got <- string(out)
				return
			}
			<-more
		}
	}
	places := []int{0, 1, 5, 1000, n - 1, n, n + 7}
	var last []byte
	for i := range n {
		e := []byte(fmt.Sprintf("event: %d\ndata: %s\n\n", i, strings.Repeat("x", r.IntN(200))))
		whole.Write(e)
		if i == n/2 {
			for _, p := range places {
				go read(p)
			}
		}
		if i == n-1 {
			last = e
			break
		}
		l.add(e, false)
	}
	stored := l.encode(last)
	l.add(last, true)
	if len(l.packed) < 2 || len(stored) > whole.Len()/2 {
		t.Errorf("%d segments, %d bytes for %d", len(l.packed), len(stored), whole.Len())
	}
	want := map[string]int{}
	for _, p := range places {
		text, _ := skipEvents(whole.Bytes(), p)
		want[string(text)]++
		leave := p
		var again []byte
		if err := segments(stored, func(events []byte) error {
			events, leave = skipEvents(events, leave)
			again = append(again, events...)
			return nil
		}); err != nil || !bytes.Equal(again, text) {
			t.Errorf("stored, behind %d: %v, %d bytes of %d", p, err, len(again), len(text))
		}
	}
	for range places {
		want[<-got]--
	}
	for text, n := range want {
		if n != 0 {
			t.Errorf("%d too few with %d bytes", n, len(text))
		}
	}
	for _, cut := range []int{1, 3, 5, len(stored) / 2, len(stored) - 1} {
		if segments(stored[:cut], func([]byte) error { return nil }) == nil {
			t.Errorf("%d bytes of a stored log are taken for whole", cut)
		}
	}
}
