package kvevents

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxTopics is the most subscriptions of one peer.
const maxTopics = 1024

// subscribers are the peers of the PUB socket.
type subscribers struct {
	mu  sync.Mutex
	all map[*subscriber]struct{}
}

// subscriber is one peer of the PUB socket. Its messages wait in a queue of their own.
type subscriber struct {
	mu      sync.Mutex
	more    *sync.Cond
	topics  map[string]int // prefixes, with how often each is subscribed to
	queue   [][]byte       // not taken by the writer, from head on
	head    int
	waiting int      // messages that are not written
	bytes   int      // of them
	out     [][]byte // taken and not written
	closed  bool
}

func newSubscriber() *subscriber {
	s := &subscriber{topics: map[string]int{}}
	s.more = sync.NewCond(&s.mu)
	return s
}

// send queues a message for every subscriber of its topic, the first frame. A subscriber for which
// hwm messages wait, or waitingBytes, does not get it.
func (l *subscribers) send(m []byte, topic string, hwm int, dropped *atomic.Uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.all {
		if !s.push(m, topic, hwm) {
			dropped.Add(1)
		}
	}
}

func (l *subscribers) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *subscribers) add(s *subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[s] = struct{}{}
}

func (l *subscribers) remove(s *subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, s)
}

// finish waits until the subscribers have been sent what waits for them, at most that long.
func (l *subscribers) finish(most time.Duration) {
	l.mu.Lock()
	var list []*subscriber
	for s := range l.all {
		list = append(list, s)
	}
	l.mu.Unlock()
	end := time.Now().Add(most)
	for _, s := range list {
		t := time.AfterFunc(time.Until(end), s.close)
		s.mu.Lock()
		for s.waiting > 0 && !s.closed {
			s.more.Wait()
		}
		s.mu.Unlock()
		t.Stop()
	}
}

// push queues a message; false: it was dropped. A message of another topic is not for s.
func (s *subscriber) push(m []byte, topic string, hwm int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.wants(topic) {
		return true
	}
	if s.waiting >= hwm {
		return false
	}
	return s.add(m)
}

// add queues a message within waitingBytes.
func (s *subscriber) add(m []byte) bool {
	if s.bytes+len(m) > waitingBytes {
		return false
	}
	s.queue = append(s.queue, m)
	s.waiting++
	s.bytes += len(m)
	s.more.Broadcast()
	return true
}

func (s *subscriber) wants(topic string) bool {
	for t := range s.topics {
		if strings.HasPrefix(topic, t) {
			return true
		}
	}
	return false
}

// together is the most messages of one write.
const together = 64

// pop waits for messages and takes some; none: s is closed. Those that it returned last were written.
func (s *subscriber) pop() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.out {
		s.waiting--
		s.bytes -= len(m)
		s.out[i] = nil
	}
	s.more.Broadcast()
	for s.head == len(s.queue) && !s.closed {
		s.more.Wait()
	}
	if s.closed {
		return nil
	}
	n := min(len(s.queue)-s.head, together)
	s.out = append(s.out[:0], s.queue[s.head:s.head+n]...)
	clear(s.queue[s.head : s.head+n])
	if s.head += n; s.head > len(s.queue)/2 {
		s.queue = append(s.queue[:0], s.queue[s.head:]...)
		s.head = 0
	}
	return s.out
}

func (s *subscriber) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.queue, s.head = nil, 0
	s.more.Broadcast()
}

// subscribe serves a peer of the PUB socket until it leaves.
func (p *Publisher) subscribe(c net.Conn) error {
	k, err := handshake(c, "PUB", "SUB", "XSUB")
	if err != nil {
		return err
	}
	s := newSubscriber()
	p.subs.add(s)
	defer p.subs.remove(s)
	var writer sync.WaitGroup
	writer.Go(func() {
		defer c.Close() // ends the loop below
		for list := s.pop(); len(list) > 0; list = s.pop() {
			buffers := append(net.Buffers(nil), list...) // writing consumes it
			if _, err := buffers.WriteTo(c); err != nil {
				return
			}
		}
	})
	defer writer.Wait()
	defer c.Close()
	defer s.close()
	for {
		f, err := k.read()
		if err != nil {
			return err
		}
		if err := s.receive(f); err != nil {
			return err
		}
	}
}

// receive applies a frame of a peer: a subscription or its end, as a message (ZMTP 3.0) or a
// command (3.1), or a PING. Other commands and messages are ignored, as ZeroMQ's XPUB sockets pass
// them to programs that wait for none.
func (s *subscriber) receive(f frame) error {
	if answer, ok := pong(f); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(answer)
		return nil
	}
	on, topic, ok := subscription(f)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !on {
		if s.topics[topic]--; s.topics[topic] <= 0 {
			delete(s.topics, topic)
		}
		return nil
	}
	if s.topics[topic]++; len(s.topics) > maxTopics {
		return &ProtocolError{"a peer subscribes to too many topics"}
	}
	return nil
}

// subscription returns the topic that a frame subscribes to, or not any more.
func subscription(f frame) (on bool, topic string, ok bool) {
	if f.command {
		name, rest, is := command(f)
		return name == "SUBSCRIBE", string(rest), is && (name == "SUBSCRIBE" || name == "CANCEL")
	}
	if f.more || len(f.body) == 0 || f.body[0] > 1 {
		return false, "", false
	}
	return f.body[0] == 1, string(f.body[1:]), true
}
