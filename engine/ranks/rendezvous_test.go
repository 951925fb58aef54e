package ranks

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

func options(key string) Options {
	return Options{Key: []byte(key), Wait: time.Minute, Silence: time.Minute, Log: slog.New(slog.DiscardHandler)}
}

func member(rank int) Member {
	return Member{Rank: rank, World: 2, Host: "b", PID: 7, Version: "v1", Profile: "p", Checkpoint: "c", Backend: "cpu avx2"}
}

// joins is a rank that joins and agrees to a plan.
func joins(address string, o Options, m Member, digest string) error {
	f, d, err := Join(context.Background(), address, o, m)
	if err != nil {
		return err
	}
	defer f.Close()
	if string(d.Decisions) != "decided" || string(d.Ticket) != "ticket" {
		return errors.New("other decisions")
	}
	return f.Agree(digest)
}

// TestRendezvous: what does not match is refused on both sides, with the rank, both values and the remedy.
func TestRendezvous(t *testing.T) {
	for name, c := range map[string]struct {
		m            Member
		digest       string
		here, remote string // parts of the errors
	}{
		"equal":      {m: member(1), digest: "plan 1"},
		"version":    {m: func() Member { m := member(1); m.Version = "v2"; return m }(), here: "rank 1 (b, process 7): vapp's version is v2 there and v1 on rank 0 (a): install one version on all hosts"},
		"profile":    {m: func() Member { m := member(1); m.Profile = "q"; return m }(), here: "the profile is q there and p on rank 0"},
		"checkpoint": {m: func() Member { m := member(1); m.Checkpoint = "d"; return m }(), here: "the checkpoint is d there and c on rank 0"},
		"variant":    {m: func() Member { m := member(1); m.Backend = "cpu avx512"; return m }(), here: "backend and variant is cpu avx512 there and cpu avx2 on rank 0 (a): set backend and cpu.variant"},
		"plan":       {m: member(1), digest: "plan 2", here: "its plan has the digest plan 2 and rank 0 (a) computes plan 1"},
		"world":      {m: func() Member { m := member(1); m.World = 3; return m }(), here: "it is one of 3 ranks and rank 0 (a) has 2"},
		"two zeros":  {m: member(0), here: "rank 0 (a, process 1) has the ranks 1 to 1"},
		"beyond":     {m: member(2), here: "rank 0 (a, process 1) has the ranks 1 to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			self := member(0)
			self.Host, self.PID = "a", 1
			l, err := Listen("127.0.0.1:0", options("key"), self)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			remote := make(chan error, 1)
			go func() { remote <- joins(l.Addr().String(), options("key"), c.m, c.digest) }()
			err = l.Gather(context.Background(), Decided{[]byte("decided"), []byte("ticket")}, func(int) (string, error) { return "plan 1", nil })
			theirs := <-remote
			if c.here == "" {
				if err != nil || theirs != nil {
					t.Fatalf("%v; %v", err, theirs)
				}
				return
			}
			for _, err := range []error{err, theirs} {
				if err == nil || !strings.Contains(err.Error(), c.here) {
					t.Errorf("%v, want %q", err, c.here)
				}
			}
			var typed *RankError
			if !errors.As(err, &typed) {
				t.Errorf("%T", err)
			}
		})
	}
}

// TestTwice: a second rank of the same number ends the group, and one that comes when all are there is refused.
func TestTwice(t *testing.T) {
	three := func(rank int) Member { m := member(rank); m.World = 3; return m }
	l, err := Listen("127.0.0.1:0", options("key"), three(0))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 {
		go func() { _ = joins(l.Addr().String(), options("key"), three(1), "plan") }()
	}
	err = l.Gather(context.Background(), Decided{}, nil)
	if err == nil || !strings.Contains(err.Error(), "rank 1 (b, process 7) is there too; give each rank a number of its own") {
		t.Error(err)
	}

	if l, err = Listen("127.0.0.1:0", options("key"), member(0)); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	first := make(chan *Follower, 1)
	go func() {
		f, _, err := Join(context.Background(), l.Addr().String(), options("key"), member(1))
		if err == nil {
			err = f.Agree("plan")
		}
		if err != nil {
			t.Error(err)
		}
		first <- f
	}()
	if err := l.Gather(context.Background(), Decided{}, func(int) (string, error) { return "plan", nil }); err != nil {
		t.Fatal(err)
	}
	defer (<-first).Close()
	if _, _, err := Join(context.Background(), l.Addr().String(), options("key"), member(1)); err == nil || !strings.Contains(err.Error(), "has all its ranks; rank 1 came late or twice") {
		t.Error(err)
	}
	if l.Err() != nil {
		t.Error(l.Err())
	}
}

// TestStrangers: who does not know the key, or sends garbage, is refused and changes nothing.
func TestStrangers(t *testing.T) {
	l, err := Listen("127.0.0.1:0", options("key"), member(0))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gathered := make(chan error, 1)
	go func() {
		gathered <- l.Gather(context.Background(), Decided{[]byte("decided"), []byte("ticket")}, func(int) (string, error) { return "plan", nil })
	}()
	if _, _, err := Join(context.Background(), l.Addr().String(), options("another"), member(1)); err == nil || !strings.Contains(err.Error(), "its key is another; parallel.key or VAPP_RANKS_KEY must be the same on all hosts") {
		t.Error(err)
	}
	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff\x01", "\x05\x00\x00\x00\x01hello", "\x00\x00\x00\x00\x03"} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(garbage)); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 4096)
		n, _ := c.Read(answer)
		if !strings.Contains(string(answer[:n]), "ranks: ") {
			t.Errorf("%q is answered with %q", garbage, answer[:n])
		}
		c.Close()
	}
	if err := joins(l.Addr().String(), options("key"), member(1), "plan"); err != nil {
		t.Error(err)
	}
	if err := <-gathered; err != nil {
		t.Error(err)
	}
}

// TestLate: waits end, and say who is missing and why the last one was refused.
func TestLate(t *testing.T) {
	o := options("key")
	o.Wait = 300 * time.Millisecond
	three := member(0)
	three.World = 3
	l, err := Listen("127.0.0.1:0", o, three)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	refused := make(chan struct{})
	go func() {
		_, _, _ = Join(context.Background(), address, options("another"), member(1))
		close(refused)
	}()
	err = l.Gather(context.Background(), Decided{}, nil)
	if err == nil || !strings.Contains(err.Error(), "ranks 1, 2: not there after 300ms (parallel.wait); rank 0 (b) waits at "+address) {
		t.Error(err)
	}
	<-refused
	if _, err := Listen(address, Options{}, three); err == nil || !strings.Contains(err.Error(), "rank 0 (b, process 7): the control channel has no key") {
		t.Error(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(taken.Addr().String(), o, three); err == nil || !strings.Contains(err.Error(), "is another rank 0 running here?") {
		t.Error(err)
	}
	if _, _, err := Join(context.Background(), taken.Addr().String(), o, member(1)); err == nil ||
		!strings.Contains(err.Error(), "rank 1 (b, process 7) at rank 0 ("+taken.Addr().String()+"): it has not begun after 300ms (parallel.wait)") {
		t.Error(err) // what listens there is silent
	}
	taken.Close()
	if _, _, err := Join(context.Background(), taken.Addr().String(), o, member(1)); err == nil || !strings.Contains(err.Error(), "rank 1 (b, process 7): rank 0 does not answer at "+taken.Addr().String()+" after 300ms") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("interrupted"))
	if _, _, err := Join(ctx, taken.Addr().String(), options("key"), member(1)); err == nil || err.Error() != "interrupted" {
		t.Error(err)
	}
}

// pair returns both ends of a group of two.
func pair(t *testing.T, silence time.Duration) (*Leader, *Follower) {
	t.Helper()
	o := options("key")
	l, err := Listen("127.0.0.1:0", o, member(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	got := make(chan *Follower, 1)
	go func() {
		f, _, err := Join(context.Background(), l.Addr().String(), o, member(1))
		if err == nil {
			err = f.Agree("plan")
		}
		if err != nil {
			t.Error(err)
		}
		got <- f
	}()
	l.o.Silence = silence
	if err := l.Gather(context.Background(), Decided{}, func(int) (string, error) { return "plan", nil }); err != nil {
		t.Fatal(err)
	}
	return l, <-got
}

// TestLost: a rank whose connection ends, that fails, or that is silent, ends the group.
func TestLost(t *testing.T) {
	for why, act := range map[string]func(f *Follower){
		"rank 1 (b, process 7): its connection ended":      func(f *Follower) { f.Close() },
		"rank 1 (b, process 7): the device is gone":        func(f *Follower) { f.Fail(errors.New("the device is gone")) },
		"rank 1 (b, process 7): it sent a frame of kind 1": func(f *Follower) { _ = f.c.send(hello, nil) },
		"rank 1 (b, process 7): it was silent for 1s":      func(f *Follower) { close(f.stop) },
	} {
		silence := time.Minute
		if strings.Contains(why, "silent") {
			silence = time.Second
		}
		l, f := pair(t, silence)
		failed := make(chan error, 1)
		l.OnFail(func(err error) { failed <- err })
		act(f)
		if err := <-failed; !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
		if err := l.Loaded(context.Background()); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("waiting for weights: %v, want %q", err, why)
		}
	}
}

// TestLostBeforeRun: a rank that loads its weights notices that rank 0 is gone, or has ended the group.
func TestLostBeforeRun(t *testing.T) {
	for name, end := range map[string]func(*Leader){
		"gone":   func(l *Leader) { _ = l.peers[1].Close() },
		"failed": func(l *Leader) { l.Fail(errors.New("no memory")) },
	} {
		t.Run(name, func(t *testing.T) {
			l, f := pair(t, time.Minute)
			defer f.Close()
			got := make(chan error, 2)
			f.OnLost(func(err error) { got <- err })
			end(l)
			want := map[string]string{"gone": "rank 0: its connection ended", "failed": "rank 0 ended the group: no memory"}[name]
			if err := <-got; err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
			f.OnLost(func(err error) { got <- err })
			if err := <-got; err.Error() != want {
				t.Errorf("later: %v", err)
			}
		})
	}
}

// TestDrain: a signal of another rank reaches rank 0.
func TestDrain(t *testing.T) {
	l, f := pair(t, time.Minute)
	asked := make(chan string, 1)
	l.OnDrain(func(who string) { asked <- who })
	f.AskToDrain()
	if who := <-asked; who != "rank 1 (b, process 7)" {
		t.Error(who)
	}
	f.Close()
}

// TestAgreement: ranks that sample other tokens are found, in whatever order their reports come.
func TestAgreement(t *testing.T) {
	var a agreement
	a.expect(2)
	for step := range uint64(4) {
		for _, who := range []string{"rank 0", "rank 1"} {
			if err := a.report(who, step, 5); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(a.steps) != 0 {
		t.Errorf("%d steps are kept", len(a.steps))
	}
	_ = a.report("rank 1", 9, 1)
	if err := a.report("rank 0", 9, 2); err == nil || err.Error() != "rank 0: it sampled other tokens in step 9 than rank 1" {
		t.Error(err)
	}
}
