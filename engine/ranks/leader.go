package ranks

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

// Options are those of both ends.
type Options struct {
	Key     []byte        // all ranks have the same; it is never sent
	Wait    time.Duration // how long a rank waits for the others before it has read weights
	Silence time.Duration // a rank that sends nothing for so long is lost
	Log     *slog.Logger
}

// Decided is what rank 0 sends to the others before they plan.
type Decided struct {
	Decisions []byte // of its plan, JSON
	Ticket    []byte // what the library of collectives needs to connect: NCCL's unique id; empty for MPI
}

// Leader is rank 0's end of the channel.
type Leader struct {
	o      Options
	ln     net.Listener
	self   Member
	name   string        // self.String()
	peers  []*peer       // by rank; peers[0] is nil
	arrive chan *peer    // a rank that has proved the key
	stop   chan struct{} // closed by the end of the group
	agreed agreement

	mu      sync.Mutex
	err     error
	ended   bool
	full    bool // no rank is missing
	onFail  []func(error)
	onDrain func(who string)
	refused string // the last connection that was refused, for the error of a rank that did not come
}

// peer is the leader's view of another rank.
type peer struct {
	*conn
	gone   chan struct{} // closed when nothing more comes from it; nil before the group is complete
	member Member
	name   string // member.String()
	ready  bool   // loaded is closed
	loaded chan struct{}
	done   chan string // answers to capture and readAdapter: "" or an error
	out    chan []byte // outputs of the last stage
}

// Listen opens the port of the control channel for rank 0, self. The error names the address and, if it is in use, what may hold
// it.
func Listen(address string, o Options, self Member) (*Leader, error) {
	if len(o.Key) == 0 {
		return nil, &RankError{self.String(), noKey}
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &RankError{self.String(), fmt.Sprintf("it cannot listen on %s: %v; is another rank 0 running here? --leader names another port", address, err)}
	}
	return &Leader{
		o: o, ln: ln, self: self, name: self.String(), peers: make([]*peer, self.World),
		arrive: make(chan *peer), stop: make(chan struct{}),
	}, nil
}

const noKey = "the control channel has no key; set parallel.key or VAPP_RANKS_KEY to the same value on all hosts"

// Addr returns the address that the others join.
func (l *Leader) Addr() net.Addr { return l.ln.Addr() }

// Gather waits for the other ranks and returns when all have the same plan. digest returns the digest of a rank's plan
// as rank 0 computes it. The error is a *RankError that names the rank and both sides, or ctx's.
func (l *Leader) Gather(ctx context.Context, d Decided, digest func(rank int) (string, error)) error {
	go l.accept()
	err := l.gather(ctx, d, digest)
	if err != nil {
		l.Fail(err)
		return err
	}
	for _, p := range l.peers[1:] {
		p.limit, p.gone = maxFrame, make(chan struct{})
		go l.listen(p)
	}
	return nil
}

func (l *Leader) gather(ctx context.Context, d Decided, digest func(rank int) (string, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.o.Wait, errLate)
	defer cancel()
	for missing := len(l.peers) - 1; missing > 0; missing-- {
		var p *peer
		select {
		case p = <-l.arrive:
		case <-ctx.Done():
			return l.late(ctx)
		}
		if err := l.admit(p); err != nil {
			return err
		}
		go p.stayAlive(l.stop)
	}
	l.mu.Lock()
	l.full = true
	l.mu.Unlock()
	for _, p := range l.peers[1:] {
		if err := p.send(welcome, encode(d)); err != nil {
			return p.lost(err)
		}
	}
	for rank, p := range l.peers {
		if p == nil {
			continue
		}
		theirs, err := p.expect(planned)
		if err != nil {
			return p.lost(err)
		}
		mine, err := digest(rank)
		switch {
		case err != nil:
			return err
		case mine != string(theirs):
			return p.lost(fmt.Errorf("its plan has the digest %s and rank 0 (%s) computes %s for it: the hosts or their files differ in what the plan depends on; compare `vapp plan` on both", short(string(theirs)), l.self.Host, short(mine)))
		}
	}
	for _, p := range l.peers[1:] {
		if err := p.send(start, nil); err != nil {
			return p.lost(err)
		}
	}
	return nil
}

// errLate is the cause of a context whose time for the rendezvous has run out.
var errLate = errors.New("the ranks did not come in time")

// late names the ranks that are missing.
func (l *Leader) late(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errLate) {
		return cause
	}
	var missing []string
	for rank := 1; rank < len(l.peers); rank++ {
		if l.peers[rank] == nil {
			missing = append(missing, fmt.Sprint(rank))
		}
	}
	who := "rank " + missing[0]
	if len(missing) > 1 {
		who = "ranks " + strings.Join(missing, ", ")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &RankError{who, fmt.Sprintf("not there after %v (parallel.wait); rank 0 (%s) waits at %s%s", l.o.Wait, l.self.Host, l.ln.Addr(), l.refused)}
}

// admit takes a rank that has proved the key into the group.
func (l *Leader) admit(p *peer) error {
	m := p.member
	switch {
	case m.World != l.self.World:
		return p.lost(fmt.Errorf("it is one of %d ranks and rank 0 (%s) has %d; start parallel.tensor × parallel.pipeline ranks", m.World, l.self.Host, l.self.World))
	case m.Rank < 1 || m.Rank >= l.self.World:
		return p.lost(fmt.Errorf("rank 0 (%s, process %d) has the ranks 1 to %d; two ranks have the number of another", l.self.Host, l.self.PID, l.self.World-1))
	case l.peers[m.Rank] != nil:
		return p.lost(fmt.Errorf("%s is there too; give each rank a number of its own", l.peers[m.Rank].member))
	}
	if why := m.differs(l.self); why != "" {
		return p.lost(errors.New(why))
	}
	l.peers[m.Rank] = p
	return nil
}

// lost returns the error of a rank. The rank gets it too, if its connection still is there.
func (p *peer) lost(err error) error {
	e := &RankError{p.name, err.Error()}
	_ = p.send(failed, []byte(e.Error()))
	return e
}

// accept answers connections until the group ends.
func (l *Leader) accept() {
	for {
		c, err := l.ln.Accept()
		if err != nil {
			return
		}
		go l.greet(newConn(c, l.o.Silence))
	}
}

// greet lets a connection prove that it knows the key. Who does not is refused, and the group goes on waiting.
func (l *Leader) greet(c *conn) {
	p, err := l.check(c)
	if err != nil {
		_ = c.send(failed, []byte(err.Error()))
		_ = c.Close()
		l.mu.Lock()
		l.refused = fmt.Sprintf("; a connection from %s was refused: %v", c.RemoteAddr(), err)
		l.mu.Unlock()
		l.o.Log.Warn("a connection to the control channel was refused", "from", c.RemoteAddr().String(), "reason", err.Error())
		return
	}
	select {
	case l.arrive <- p:
	case <-l.stop:
		_ = c.Close()
	case <-time.After(l.o.Wait):
		_ = c.send(failed, []byte(fmt.Sprintf("rank 0 (%s) has all its ranks; this one came late or twice", l.self.Host)))
		_ = c.Close()
	}
}

func (l *Leader) check(c *conn) (*peer, error) {
	b, err := c.expect(hello)
	if err != nil {
		return nil, err
	}
	var g greeting
	if err := parse(b, &g); err != nil {
		return nil, err
	}
	if g.Protocol != protocol {
		return nil, fmt.Errorf("it speaks version %d of the control channel and rank 0 (%s) version %d; install one version of vapp on all hosts", g.Protocol, l.self.Host, protocol)
	}
	if l.complete() {
		return nil, fmt.Errorf("rank 0 (%s) has all its ranks; rank %d came late or twice", l.self.Host, g.Member.Rank)
	}
	mine := nonce()
	if err := c.send(challenge, encode(answer{mine, mac(l.o.Key, "leader", g.Member.Rank, mine, g.Nonce)})); err != nil {
		return nil, err
	}
	if b, err = c.expect(proof); err != nil {
		return nil, err
	}
	var a answer
	if err := parse(b, &a); err != nil {
		return nil, err
	}
	if !hmac.Equal(a.MAC, mac(l.o.Key, "rank", g.Member.Rank, g.Nonce, mine)) {
		return nil, errKey
	}
	c.limit = memberBytes
	return &peer{conn: c, member: g.Member, name: g.Member.String(), loaded: make(chan struct{}), done: make(chan string, 1), out: make(chan []byte, 4)}, nil
}

var errKey = errors.New("its key is another; parallel.key or VAPP_RANKS_KEY must be the same on all hosts")

// complete reports whether no rank is missing.
func (l *Leader) complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended || l.full
}

// Loaded waits until all ranks have their weights.
func (l *Leader) Loaded(ctx context.Context) error {
	for _, p := range l.peers[1:] {
		select {
		case <-p.loaded:
		case <-l.stop:
			return l.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// listen handles what a rank sends until its connection ends.
func (l *Leader) listen(p *peer) {
	defer close(p.gone)
	for {
		k, b, err := p.receive(nil)
		switch {
		case err != nil:
			l.Fail(&RankError{p.name, err.Error()})
			return
		case k == failed:
			l.Fail(&RankError{p.name, string(b)})
			return
		case k == alive:
		case k == drain:
			l.drain(p.name)
		case k == loaded && !p.ready:
			p.ready = true
			close(p.loaded)
		case k == done:
			p.done <- string(b)
		case k == outputs && len(b) >= 8:
			p.out <- b
		case k == sampled && len(b) == 12:
			if err := l.agreed.report(p.name, binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])); err != nil {
				l.Fail(err)
				return
			}
		default:
			l.Fail(&RankError{p.name, fmt.Sprintf("it sent a frame of kind %d with %d bytes", k, len(b))})
			return
		}
	}
}

// OnDrain sets what happens when a rank is asked to end, by a signal.
func (l *Leader) OnDrain(f func(who string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onDrain = f
}

func (l *Leader) drain(who string) {
	l.mu.Lock()
	f := l.onDrain
	l.mu.Unlock()
	if f != nil {
		f(who)
	}
}

// toAll sends a frame to all ranks.
func (l *Leader) toAll(k kind, payload []byte) error { return l.send(l.peers[1:], k, payload) }

// send sends a frame to some ranks.
func (l *Leader) send(to []*peer, k kind, payload []byte) error {
	for _, p := range to {
		if err := p.send(k, payload); err != nil {
			err = &RankError{p.name, err.Error()}
			l.Fail(err)
			return l.Err()
		}
	}
	return l.Err()
}

// OnFail calls f once, with the error of the group, when it fails.
func (l *Leader) OnFail(f func(error)) {
	l.mu.Lock()
	err := l.err
	if err == nil {
		l.onFail = append(l.onFail, f)
	}
	l.mu.Unlock()
	if err != nil {
		f(err)
	}
}

// Err returns why the group has failed, nil if it has not.
func (l *Leader) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Fail ends the group: all ranks get the error and leave. The first error stays.
func (l *Leader) Fail(err error) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return
	}
	l.ended, l.err = true, err
	calls := l.onFail
	l.mu.Unlock()
	for _, f := range calls {
		f(err)
	}
	l.close(failed, []byte(err.Error()))
}

// Close ends the group without an error.
func (l *Leader) Close() {
	l.mu.Lock()
	ended := l.ended
	l.ended = true
	l.mu.Unlock()
	if !ended {
		l.close(end, nil)
	}
}

// lastWords is how long rank 0 waits for the other ranks to close their side after the last frame. They may still send what steps
// have sampled, and a connection that is closed too early would look like a failure to them.
const lastWords = 2 * time.Second

// close sends the last frame to all ranks and closes their connections.
func (l *Leader) close(k kind, payload []byte) {
	close(l.stop)
	_ = l.ln.Close()
	var wg sync.WaitGroup
	for _, p := range l.peers {
		if p != nil {
			wg.Go(func() {
				_ = p.SetWriteDeadline(time.Now().Add(time.Second))
				_ = p.send(k, payload)
				if p.gone != nil && k == end {
					select {
					case <-p.gone:
					case <-time.After(lastWords):
					}
				}
				_ = p.Close()
			})
		}
	}
	wg.Wait()
}
