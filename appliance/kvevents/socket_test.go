package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"vapp.dev/engine/kv"
)

var clearAll = []kv.Change{{Op: kv.Cleared}}

// raw connects as a peer that follows the protocol as far as the test wants.
func raw(t *testing.T, at, kind string) *conn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	k, err := handshake(c, kind, "PUB", "ROUTER")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *conn) say(t *testing.T, frames ...[]byte) {
	t.Helper()
	for i, f := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		if _, err := k.Write(appendFrame(nil, flags, f)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStuckSubscriber: a subscriber that never reads loses messages beyond the limit, another one
// gets all, and publishing goes on.
func TestStuckSubscriber(t *testing.T) {
	p := open(t, Config{HWM: 1000, Topic: strings.Repeat("t", 60000)})
	raw(t, p.Addr(), "SUB").say(t, []byte{1})
	v := watch(t, p)
	subscribed(p, 2)
	for n := uint64(0); p.Counts().Dropped == 0; n++ {
		p.Changed(kv.Layout{}, clearAll)
		m, err := v.sub.Recv()
		if err != nil || binary.BigEndian.Uint64(m.Frames[1]) != n {
			t.Fatalf("batch %d: %v, %v", n, m, err)
		}
	}
	if c := p.Counts(); c.Lost != 0 || c.Subscribers != 2 {
		t.Errorf("%+v, want two subscribers and nothing lost before them", c)
	}
}

// TestHWM: the limit counts messages of one subscriber.
func TestHWM(t *testing.T) {
	s := newSubscriber()
	if err := s.receive(frame{body: []byte("\x01kv@")}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false} {
		if got := s.push([]byte{1}, "kv@a", 2); got != want {
			t.Errorf("message %d: queued %v, want %v", i, got, want)
		}
	}
	if !s.push([]byte{1}, "other", 2) || s.waiting != 2 {
		t.Errorf("a message of another topic counts: %d wait", s.waiting)
	}
	if n := len(s.pop()); n != 2 || s.push([]byte{1}, "kv@a", 2) {
		t.Errorf("%d messages taken; those that are being written count too", n)
	}
	if err := s.receive(frame{command: true, body: []byte("\x06CANCELkv@")}); err != nil || s.wants("kv@a") {
		t.Errorf("a cancelled subscription stays: %v", err)
	}
}

// TestQueueFull: batches that the engine makes too fast are counted, leave a gap in the sequence,
// and the next one clears what subscribers believe.
func TestQueueFull(t *testing.T) {
	p := &Publisher{queue: make(chan *batch, 1)}
	for range 3 {
		p.Changed(kv.Layout{}, clearAll)
	}
	first := <-p.queue
	p.Changed(kv.Layout{}, clearAll)
	next := <-p.queue
	if first.seq != 0 || first.cleared || next.seq != 3 || !next.cleared || p.counts.lost.Load() != 2 {
		t.Errorf("batches %+v and %+v, lost %d; want 0 and 3, which clears, 2 lost", first, next, p.counts.lost.Load())
	}
}

// TestBadPeers: peers that break the protocol are refused and counted.
func TestBadPeers(t *testing.T) {
	p := open(t, Config{})
	for what, bytes := range map[string]string{
		"HTTP":             "GET / HTTP/1.1\r\nHost: a\r\n\r\n" + strings.Repeat("x", 100),
		"a huge frame":     greeting("NULL", 3) + "\x06\x7f\xff\xff\xff\xff\xff\xff\xff",
		"a long frame":     greeting("NULL", 3) + "\x06\x00\x00\x00\x00\x00\x00\x10\x01",
		"unknown flags":    greeting("NULL", 3) + "\x80\x00",
		"no READY":         greeting("NULL", 3) + "\x00\x01a",
		"no socket type":   greeting("NULL", 3) + "\x04\x06\x05READY",
		"a wrong length":   greeting("NULL", 3) + "\x04\x0c\x05READY\x01a\xff\xff\xff\xff",
		"a PULL":           greeting("NULL", 3) + string(appendFrame(nil, flagCommand, ready("PULL"))),
		"an old version":   greeting("NULL", 1),
		"another security": greeting("CURVE", 3),
	} {
		for _, at := range []string{p.Addr(), p.ReplayAddr()} {
			before := p.counts.refused.Load()
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, bytes); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, c) // until the server hangs up
			c.Close()
			for tick := time.NewTicker(time.Millisecond); p.counts.refused.Load() == before; <-tick.C {
			}
			if got := p.counts.refused.Load(); got != before+1 {
				t.Errorf("%s: %d refusals, want one", what, got-before)
			}
		}
	}
}

func greeting(mechanism string, version byte) string {
	b := make([]byte, greetingBytes)
	b[0], b[9], b[10] = 0xff, 0x7f, version
	copy(b[12:], mechanism)
	return string(b)
}

// TestReplayRequests: wrong requests get no answer, and the peer can go on.
func TestReplayRequests(t *testing.T) {
	p := open(t, Config{BufferSteps: 2})
	for range 5 {
		p.Changed(kv.Layout{}, clearAll)
	}
	for tick := time.NewTicker(time.Millisecond); p.Counts().Published < 5; <-tick.C {
	}
	k := raw(t, p.ReplayAddr(), "DEALER")
	at := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	k.say(t, at(0))
	k.say(t, nil, []byte("1"))
	k.say(t, nil, at(0), nil)
	k.say(t, []byte("x"), at(0))
	for _, c := range []struct {
		start uint64
		want  []uint64
	}{{0, []uint64{3, 4, endMarker}}, {4, []uint64{4, endMarker}}, {5, []uint64{endMarker}}, {endMarker, []uint64{endMarker}}} {
		k.say(t, nil, at(c.start))
		for _, want := range c.want {
			frames, err := k.request(k)
			if err != nil || len(frames) != 3 || binary.BigEndian.Uint64(frames[1]) != want || (len(frames[2]) == 0) != (want == endMarker) {
				t.Fatalf("from %d: %q, %v, want batch %d", c.start, frames, err, want)
			}
		}
	}
	for tick := time.NewTicker(time.Millisecond); p.Counts().Replays < 4; <-tick.C {
	}
	if c := p.Counts(); c.Refused != 4 || c.Replays != 4 {
		t.Errorf("%d requests refused and %d answered, want 4 and 4", c.Refused, c.Replays)
	}
}

// TestPing: a PING is answered with its context.
func TestPing(t *testing.T) {
	p := open(t, Config{})
	for _, at := range []string{p.Addr(), p.ReplayAddr()} {
		kind := map[string]string{p.Addr(): "SUB", p.ReplayAddr(): "REQ"}[at]
		k := raw(t, at, kind)
		if _, err := k.Write(appendFrame(nil, flagCommand, []byte("\x04PING\x00\x0aabc"))); err != nil {
			t.Fatal(err)
		}
		f, err := k.read()
		if name, rest, _ := command(f); err != nil || name != "PONG" || string(rest) != "abc" {
			t.Errorf("%s: %q %q, %v", kind, name, rest, err)
		}
	}
}

// TestConnect: an endpoint with a host is connected to, once there is a subscriber that listens.
func TestConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "tcp://" + l.Addr().String()
	l.Close()
	p := open(t, Config{Endpoint: at})
	for tick := time.NewTicker(time.Millisecond); p.Counts().ConnectFailures == 0; <-tick.C {
	}
	sub := zmq4.NewSub(context.Background())
	defer sub.Close()
	if err := sub.SetOption(zmq4.OptionSubscribe, ""); err != nil {
		t.Fatal(err)
	}
	if err := sub.Listen(at); err != nil {
		t.Fatal(err)
	}
	subscribed(p, 1)
	p.Changed(kv.Layout{}, clearAll)
	if m, err := sub.Recv(); err != nil || len(m.Frames) != 3 {
		t.Errorf("%v, %v", m, err)
	}
}

// TestOpenErrors: endpoints that cannot be opened are one line with the endpoint, and nothing stays open.
func TestOpenErrors(t *testing.T) {
	used, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	_, port, _ := net.SplitHostPort(used.Addr().String())
	free := "tcp://*:0"
	for _, c := range []struct{ endpoint, replay, field, want string }{
		{"tcp://*:" + port, "", "endpoint", "in use"},
		{"ftp://a", "", "endpoint", "want tcp://"},
		{free, "tcp://*:" + port, "replayEndpoint", "in use"},
		{free, "tcp://192.0.2.1:5558", "replayEndpoint", "not one of this host"},
		{free, "tcp://host.invalid:5558", "replayEndpoint", "cannot listen"},
		{"tcp://router:0", "", "endpoint", "port 0"},
		{free, "x", "replayEndpoint", "want tcp://"},
		{"ipc://" + filepath.Join(t.TempDir(), "no", "folder"), "", "endpoint", "cannot listen"},
	} {
		_, err := Open(Config{Endpoint: c.endpoint, ReplayEndpoint: c.replay})
		var e *EndpointError
		if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s, %s: %v, want %s: …%s", c.endpoint, c.replay, err, c.field, c.want)
		}
	}
}

// TestPath: a socket in the file system is opened again after a process that left it, and not twice.
func TestPath(t *testing.T) {
	at := "ipc://" + filepath.Join(t.TempDir(), "kv.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: strings.TrimPrefix(at, "ipc://"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	open(t, Config{Endpoint: at})
	if _, err := Open(Config{Endpoint: at}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second server: %v", err)
	}
}

// FuzzReplayRequest sends bytes to the replay socket's reader after the handshake.
func FuzzReplayRequest(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x05"))
	f.Add([]byte("\x04\x09\x04PING\x00\x01ab"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\xff\xff"))
	f.Add([]byte("\x04\x0c\x05READY\x01a\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		defer near.Close()
		go func() {
			go func() { _, _ = io.Copy(io.Discard, far) }()
			_, _ = far.Write(b)
			far.Close()
		}()
		k := newConn(near)
		for {
			request, err := k.request(near)
			if err != nil {
				break
			}
			start, err := Start(request)
			if (err == nil) != (len(request) == 2 && len(request[0]) == 0 && len(request[1]) == 8) {
				t.Fatalf("%q: from %d, %v", request, start, err)
			}
		}
	})
}

// FuzzSubscription applies frames of a subscriber.
func FuzzSubscription(f *testing.F) {
	f.Add(byte(0), []byte("\x01kv@"))
	f.Add(byte(flagCommand), []byte("\x09SUBSCRIBEkv@"))
	f.Add(byte(flagCommand), []byte("\x06CANCEL"))
	f.Add(byte(flagCommand), []byte("\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"))
	f.Fuzz(func(t *testing.T, flags byte, body []byte) {
		s := newSubscriber()
		in := frame{more: flags&flagMore != 0, command: flags&flagCommand != 0, body: body}
		_ = s.receive(in)
		_, _ = socketType(in)
		if len(s.topics) > 1 || len(s.queue) > 1 {
			t.Fatalf("one frame gave %d topics and %d answers", len(s.topics), len(s.queue))
		}
	})
}
