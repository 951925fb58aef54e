package orted

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// key is that of the tests, wait a time that no test needs whole.
var key = []byte(strings.Repeat("k", 32))

const wait = time.Minute

// free returns an address that was free.
func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// gathered returns a group of two and the worker of rank 1.
func gathered(t *testing.T) (*Group, *Worker) {
	t.Helper()
	addr := free(t)
	type got struct {
		w   *Worker
		err error
	}
	joined := make(chan got, 1)
	go func() {
		w, err := Join(t.Context(), addr, key, 1, wait)
		joined <- got{w, err}
	}()
	g, err := Gather(t.Context(), addr, key, 2, wait)
	if err != nil {
		t.Fatal(err)
	}
	j := <-joined
	if j.err != nil {
		t.Fatal(j.err)
	}
	t.Cleanup(g.Close)
	return g, j.w
}

// TestRun: what mpirun gives to its agent reaches the host as arguments of orted, and orted's code comes back.
func TestRun(t *testing.T) {
	for code, want := range map[int]string{0: "", 3: "has ended with code 3"} {
		g, w := gathered(t)
		if h := g.Hosts(); len(h) != 1 || h[0] != "127.0.0.1" {
			t.Fatal(h)
		}
		ran := make(chan error, 1)
		go func() {
			ran <- g.Run("127.0.0.1", []string{" orted", "-mca", `"orte_hnp_uri"`, `"1.0;tcp://10.0.0.1:5"`})
		}()
		args, err := w.Command()
		if err != nil || strings.Join(args, " ") != "-mca orte_hnp_uri 1.0;tcp://10.0.0.1:5" {
			t.Fatalf("%q, %v", args, err)
		}
		w.Close(code)
		if err := <-ran; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("code %d: %v", code, err)
		}
	}
}

// TestDrain: a worker's host asks for the end of the server.
func TestDrain(t *testing.T) {
	g, w := gathered(t)
	if err := w.Drain(); err != nil {
		t.Fatal(err)
	}
	<-g.Drained
}

// TestLost: each side sees that the other one is gone.
func TestLost(t *testing.T) {
	g, w := gathered(t)
	g.Close()
	var e *Error
	if err := w.Lost(); !errors.As(err, &e) || !strings.Contains(err.Error(), "its host is gone") {
		t.Error(err)
	}
	g, w = gathered(t)
	w.conn.Close()
	if err := g.Run("127.0.0.1", []string{"orted"}); err == nil {
		t.Error("a command for a host that is gone has run")
	}
}

// TestKey: another key is refused on both sides, and the leader goes on waiting.
func TestKey(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Gather(ctx, addr, key, 2, wait)
		ended <- err
	}()
	for { // it may not listen yet
		_, err := join(t.Context(), addr, []byte("another"), 1)
		if err == nil {
			t.Fatal("another key is taken")
		}
		if errors.Is(err, errKey) {
			break
		}
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "no host has connected for rank 1") || !strings.Contains(err.Error(), "the same key") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	if _, err := Gather(t.Context(), addr, nil, 2, wait); err == nil || !strings.Contains(err.Error(), "set VAPP_RANKS_KEY") {
		t.Error(err)
	}
	if _, err := Join(t.Context(), addr, nil, 1, wait); err == nil || !strings.Contains(err.Error(), "set VAPP_RANKS_KEY") {
		t.Error(err)
	}
}

// TestTake: a rank that is there already, is none, or shares its host with another one is refused by name.
func TestTake(t *testing.T) {
	for want, ranks := range map[string][2]int{"another process is this rank": {1, 1}, "there is no such rank; there are 3": {1, 3}, "another rank is on 127.0.0.1": {1, 2}} {
		addr := free(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := Gather(ctx, addr, key, 3, wait)
			ended <- err
		}()
		first, err := Join(t.Context(), addr, key, ranks[0], wait)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Join(t.Context(), addr, key, ranks[1], wait)
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan error, 2) // which one came second is not known here
		for _, w := range []*Worker{first, second} {
			go func() {
				_, err := w.Command()
				answers <- err
			}()
		}
		if err := <-answers; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("the group is complete")
		}
	}
}

func TestArguments(t *testing.T) {
	for text, ok := range map[string]bool{
		"orted|-x": true, " orted ": true, "": false, "sh|-c|orted": false, "/tmp/orted": false, "../orted": false, `orted|a"b`: false,
		"orted|a\nb": false, `orted|"; rm -r /"`: true, `orted|"`: false, "PATH=/tmp:$PATH|orted": false,
	} {
		args, err := arguments(strings.Split(text, "|"))
		if (err == nil) != ok || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q, %v", text, args, err)
		}
	}
}

// FuzzArguments: whatever the words are, only orted is run, and an error has one line.
func FuzzArguments(f *testing.F) {
	f.Add(` orted|-mca|"a"|"b;c"`)
	f.Add("sh|-c|true")
	f.Fuzz(func(t *testing.T, text string) {
		words := strings.Split(text, "|")
		args, err := arguments(words)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		if first := strings.Trim(strings.TrimSpace(words[0]), `"`); first != "orted" || len(args) != len(words)-1 {
			t.Errorf("%q runs %q", text, args)
		}
	})
}
