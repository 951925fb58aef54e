package kvevents

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/vmihailenco/msgpack/v5"

	"vapp.dev/engine/kv"
)

// served is a prefix cache whose changes are published.
type served struct {
	pool *kv.Pool
	pub  *Publisher // nil: changes are only counted
	rng  *rand.Rand
	kept []*kv.Table // of running sequences

	batches int
}

func open(t testing.TB, c Config) *Publisher {
	t.Helper()
	if c.Endpoint == "" {
		c.Endpoint = "tcp://*:0"
	}
	if c.ReplayEndpoint == "" {
		c.ReplayEndpoint = "tcp://127.0.0.1:0"
	}
	if c.HWM == 0 {
		c.HWM = 100000
	}
	if c.BufferSteps == 0 {
		c.BufferSteps = 100000
	}
	c.Log = slog.New(slog.DiscardHandler)
	p, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func newServed(t testing.TB, p *Publisher) *served {
	t.Helper()
	l, err := kv.NewLayout([]kv.Spec{
		{Name: "full", Kind: kv.Full, PageBytes: 1 << 18, BlockSize: 4},
		{Name: "window", Kind: kv.Window, PageBytes: 1 << 18, BlockSize: 4, Window: 9},
		{Name: "state", Kind: kv.State, PageBytes: 1 << 18},
		{Name: "checkpoint", Kind: kv.Snapshot, PageBytes: 1 << 18, BlockSize: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &served{pool: kv.NewPool(l, 8, true), pub: p, rng: rand.New(rand.NewPCG(1, 2))}
	s.pool.Record("0")
	return s
}

// request computes a random sequence, whose beginning other sequences share.
func (s *served) request(t testing.TB) {
	tokens := make([]int32, 1+s.rng.IntN(60))
	for i := range tokens {
		tokens[i] = int32(s.rng.IntN(12) / 11)
	}
	o := kv.Origin{Adapter: []string{"", "", "sql"}[s.rng.IntN(3)], Salt: []string{"", "", "tenant"}[s.rng.IntN(3)]}
	for len(s.kept) > s.rng.IntN(3) {
		s.pool.Free(s.kept[0])
		s.kept = s.kept[1:]
	}
	if s.rng.IntN(50) == 0 {
		s.pool.EvictAll()
	}
	tab := s.pool.NewTable(o.Adapter + "\x00" + o.Salt)
	tab.SetOrigin(o)
	s.pool.BeginStep()
	from := s.pool.Match(tab, tokens)
	if s.pool.Extend(tab, from, len(tokens), len(tokens)) {
		s.pool.PlanSnapshots(tab, tokens, from, len(tokens), len(tokens))
		s.pool.Seal(tab, tokens, len(tokens))
	}
	s.kept = append(s.kept, tab)
	list := s.pool.Changes()
	if len(list) == 0 {
		return
	}
	if s.batches++; s.pub == nil {
		return
	}
	for len(s.pub.queue) > queueBatches/2 { // an engine would not be so fast
		runtime.Gosched()
	}
	s.pub.Changed(s.pool.Layout(), list)
}

// subscribed waits until n peers have subscribed.
func subscribed(p *Publisher, n int) {
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		have := 0
		p.subs.mu.Lock()
		for s := range p.subs.all {
			s.mu.Lock()
			if s.wants(p.cfg.Topic) {
				have++
			}
			s.mu.Unlock()
		}
		p.subs.mu.Unlock()
		if have == n {
			return
		}
	}
}

// view is what a subscriber believes.
type view struct {
	sub, replay zmq4.Socket
	next        uint64 // the number of the next batch
	blocks      map[string]bool
	rng         *rand.Rand

	lost, replayed int
}

func watch(t testing.TB, p *Publisher) *view {
	t.Helper()
	v := &view{
		sub: zmq4.NewSub(context.Background()), replay: zmq4.NewDealer(context.Background()), blocks: map[string]bool{},
		rng: rand.New(rand.NewPCG(3, 4)),
	}
	t.Cleanup(func() { v.sub.Close(); v.replay.Close() })
	if err := v.sub.SetOption(zmq4.OptionSubscribe, ""); err != nil {
		t.Fatal(err)
	}
	for s, at := range map[zmq4.Socket]string{v.sub: p.Addr(), v.replay: p.ReplayAddr()} {
		if err := s.Dial("tcp://" + at); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// follow receives batches until the one of that number is applied. It loses some, and asks for them again.
func (v *view) follow(last uint64) error {
	for v.next <= last {
		m, err := v.sub.Recv()
		if err != nil {
			return err
		}
		if len(m.Frames) != 3 {
			return fmt.Errorf("a message has %d frames, want 3", len(m.Frames))
		}
		seq := binary.BigEndian.Uint64(m.Frames[1])
		if v.rng.IntN(5) == 0 && seq != last {
			v.lost++
			continue
		}
		if err := v.take(seq, m.Frames[2]); err != nil {
			return err
		}
	}
	return nil
}

// take applies a batch, after those before it that were lost.
func (v *view) take(seq uint64, payload []byte) error {
	if seq < v.next {
		return nil // replayed before
	}
	if seq > v.next {
		if err := v.again(); err != nil {
			return err
		}
		if seq < v.next {
			return nil
		}
		return fmt.Errorf("batch %d follows %d, and a replay has nothing between", seq, v.next)
	}
	v.next++
	return v.apply(payload)
}

// again asks for all batches from the next one on.
func (v *view) again() error {
	v.replayed++
	if err := v.replay.SendMulti(zmq4.NewMsgFrom(nil, binary.BigEndian.AppendUint64(nil, v.next))); err != nil {
		return err
	}
	for {
		m, err := v.replay.Recv()
		if err != nil {
			return err
		}
		if len(m.Frames) != 3 || len(m.Frames[0]) != 0 {
			return fmt.Errorf("a replay has the frames %q", m.Frames)
		}
		seq := binary.BigEndian.Uint64(m.Frames[1])
		if seq == endMarker {
			if len(m.Frames[2]) != 0 {
				return fmt.Errorf("the end of a replay has a payload")
			}
			return nil
		}
		if seq != v.next {
			return fmt.Errorf("a replay has batch %d, want %d", seq, v.next)
		}
		v.next++
		if err := v.apply(m.Frames[2]); err != nil {
			return err
		}
	}
}

func (v *view) apply(payload []byte) error {
	var b []any
	if err := msgpack.Unmarshal(payload, &b); err != nil {
		return err
	}
	for _, e := range b[1].([]any) {
		e := e.([]any)
		switch e[0] {
		case "AllBlocksCleared":
			clear(v.blocks)
		case "BlockStored":
			for _, h := range e[1].([]any) {
				v.blocks[fmt.Sprint(e[9], " ", h)] = true
			}
		case "BlockRemoved":
			for _, h := range e[1].([]any) {
				delete(v.blocks, fmt.Sprint(e[3], " ", h))
			}
		default:
			return fmt.Errorf("event %v", e[0])
		}
	}
	return nil
}

// TestTwin rebuilds a prefix cache from the events of random requests, some of which the
// subscriber loses. The tag soak has it do 10,000.
func TestTwin(t *testing.T) {
	p := open(t, Config{Topic: "kv@127.0.0.1@m"})
	s, v := newServed(t, p), watch(t, p)
	subscribed(p, 1)
	for done := 0; done < twinRequests; {
		for range 50 {
			s.request(t)
			done++
		}
		if err := v.follow(p.next - 1); err != nil {
			t.Fatal(err)
		}
		n := 0
		s.pool.Contents(func(class int, h kv.Hash) {
			if n++; !v.blocks[fmt.Sprint(class, " ", External(h))] {
				t.Fatalf("after %d requests: block %x of class %d is cached, and the subscriber does not know", done, h, class)
			}
		})
		if n != len(v.blocks) {
			t.Fatalf("after %d requests: %d blocks are cached, the subscriber knows %d", done, n, len(v.blocks))
		}
	}
	if v.lost == 0 || v.replayed == 0 {
		t.Errorf("%d batches were lost, %d replays: that tests too little", v.lost, v.replayed)
	}
	t.Logf("%d batches, %d lost, %d replays", v.next, v.lost, v.replayed)
}

// TestPython is TestTwin with a subscriber in Python. VAPP_PYTHON names a Python with pyzmq and msgpack.
func TestPython(t *testing.T) {
	python := os.Getenv("VAPP_PYTHON")
	if python == "" {
		t.Skip("not run: VAPP_PYTHON names no Python with pyzmq and msgpack")
	}
	p := open(t, Config{Topic: "kv@127.0.0.1@m", BufferSteps: 1000000})
	s := newServed(t, p)
	for range twinRequests / 2 {
		s.request(t)
	}
	more := make(chan struct{})
	go func() { // while the subscriber reads
		defer close(more)
		subscribed(p, 1)
		for range twinRequests - twinRequests/2 {
			s.request(t)
		}
	}()
	port := func(at string) string { return "tcp://127.0.0.1" + at[strings.LastIndex(at, ":"):] }
	total := newServed(t, nil) // makes the same requests
	for range twinRequests {
		total.request(t)
	}
	cmd := exec.Command(python, "testdata/subscriber.py", port(p.Addr()), port(p.ReplayAddr()), p.cfg.Topic, fmt.Sprint(total.batches))
	var figures strings.Builder
	cmd.Stderr = &figures
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, figures.String())
	}
	<-more
	want := 0
	s.pool.Contents(func(class int, h kv.Hash) {
		if want++; !strings.Contains("\n"+string(out), fmt.Sprintf("\n%d %d\n", class, External(h))) {
			t.Errorf("block %x of class %d is cached, and the subscriber does not know", h, class)
		}
	})
	if n := strings.Count(string(out), "\n"); n != want || want == 0 {
		t.Errorf("%d blocks are cached, the subscriber knows %d", want, n)
	}
	t.Log(figures.String())
}
