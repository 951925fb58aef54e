package kvevents

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"vapp.dev/engine/kv"
)

// Config holds the arguments of Open, with vLLM's names.
type Config struct {
	// Endpoint of the PUB socket: see ParseEndpoint.
	Endpoint string
	// ReplayEndpoint of the ROUTER socket, which always listens; "": no replay.
	ReplayEndpoint string
	Topic          string // first frame of every message
	BufferSteps    int    // batches kept for replay
	HWM            int    // messages that wait for one subscriber; further ones are dropped
	Log            *slog.Logger
}

// Limits that keep memory bounded, whatever Config says.
const (
	queueBatches = 256      // batches on their way from the engine
	BufferBytes  = 64 << 20 // of the batches kept for replay
	waitingBytes = 4 << 20  // that wait for one subscriber
	maxPeers     = 16       // connections of each socket
	// MaxBytes bounds the memory of a Publisher; batches on their way are estimated.
	MaxBytes = BufferBytes + maxPeers*waitingBytes + 32<<20
)

// Publisher publishes the changes of one prefix cache at a time.
type Publisher struct {
	choosing sync.Mutex // guards current
	current  *Source    // nil: none yet

	cfg   Config
	queue chan *batch
	free  chan *batch
	done  chan struct{} // closed when the queue's goroutine has ended

	// Of the engine's loop:
	mu     sync.Mutex // excludes Close
	closed bool
	next   uint64
	lost   bool // batches since the last one that was queued

	buffer *buffer
	pub    *socket
	replay *socket // nil: none
	subs   subscribers
	counts counts
}

// counts are the counters of Counts.
type counts struct {
	published, events, lost, dropped, replays, refused, connectFailures atomic.Uint64
}

// Counts are figures since Open, except Subscribers.
type Counts struct {
	Published       uint64 // batches
	Events          uint64 // in them
	Lost            uint64 // batches that the engine made faster than they were encoded
	Dropped         uint64 // messages that a subscriber was not sent, since HWM others waited for it
	Replays         uint64 // answered requests
	Refused         uint64 // requests and peers that do not follow the protocol, or are too many
	ConnectFailures uint64 // failed attempts to reach an Endpoint that is not listened on
	Subscribers     int    // connected now
}

// batch is what the engine's loop hands over.
type batch struct {
	seq     uint64
	at      time.Time
	cleared bool // batches before it were lost
	specs   []kv.Spec
	changes []kv.Change
}

// Open opens the sockets. Its errors are *EndpointError.
func Open(c Config) (*Publisher, error) {
	p := &Publisher{
		cfg: c, queue: make(chan *batch, queueBatches), free: make(chan *batch, queueBatches+1), done: make(chan struct{}),
		buffer: newBuffer(c.BufferSteps, BufferBytes),
	}
	p.subs.all = map[*subscriber]struct{}{}
	var err error
	if p.pub, err = p.openPub(); err != nil {
		return nil, err
	}
	if c.ReplayEndpoint != "" {
		if p.replay, err = p.openReplay(); err != nil {
			p.pub.close()
			return nil, err
		}
	}
	go p.run()
	return p, nil
}

// Addr returns the address that the PUB socket listens on, "" if it connects.
func (p *Publisher) Addr() string { return p.pub.addr() }

// ReplayAddr returns the address of the ROUTER socket, "" without one.
func (p *Publisher) ReplayAddr() string {
	if p.replay == nil {
		return ""
	}
	return p.replay.addr()
}

// Changed publishes changes as one batch: it is engine.BlockHook's function. It never waits. If
// batches have come faster than they were encoded, it counts this one as lost. Its sequence number
// is then skipped, and the next batch begins with AllBlocksCleared, so that no subscriber
// believes in blocks that have gone.
func (p *Publisher) Changed(l kv.Layout, changes []kv.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	seq := p.next
	p.next++
	if len(p.queue) == cap(p.queue) { // only this function adds to it
		p.lost = true
		p.counts.lost.Add(1)
		return
	}
	var b *batch
	select {
	case b = <-p.free:
	default:
		b = &batch{}
	}
	b.seq, b.at, b.specs, b.cleared = seq, time.Now(), l.Specs, p.lost
	b.changes = append(b.changes[:0], changes...)
	p.lost = false
	p.queue <- b
}

// run encodes and sends the queued batches.
func (p *Publisher) run() {
	defer close(p.done)
	for b := range p.queue {
		payload, events := encode(b)
		p.buffer.add(b.seq, payload)
		p.counts.published.Add(1)
		p.counts.events.Add(uint64(events))
		p.subs.send(message(p.cfg.Topic, b.seq, payload), p.cfg.Topic, p.cfg.HWM, &p.counts.dropped)
		clear(b.changes) // they hold the tokens of sequences
		select {
		case p.free <- b:
		default:
		}
	}
}

// Counts returns the figures.
func (p *Publisher) Counts() Counts {
	c := &p.counts
	return Counts{
		Published: c.published.Load(), Events: c.events.Load(), Lost: c.lost.Load(), Dropped: c.dropped.Load(), Replays: c.replays.Load(),
		Refused: c.refused.Load(), ConnectFailures: c.connectFailures.Load(), Subscribers: p.subs.count(),
	}
}

// Close encodes what is queued, closes the sockets and returns when nothing of p runs any more.
func (p *Publisher) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	close(p.queue)
	p.mu.Unlock()
	<-p.done
	p.subs.finish(closeGrace)
	p.pub.close()
	if p.replay != nil {
		p.replay.close()
	}
}

// closeGrace is how long Close waits for subscribers to read what waits for them.
const closeGrace = 200 * time.Millisecond
