package appliance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// The reply that a stalled client does not read has 180 kB, mostly the prompt's tokens with
// twenty alternatives each, for each choice.
const (
	stalledChoices = 3
	stalledPrompt  = 200
	stalledTokens  = 10
)

// tight is a listener whose connections have small buffers.
type tight struct{ net.Listener }

func (l tight) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return c, err
}

func tighten(a *Appliance) { a.socket.socket = tight{a.socket.socket} }

// stall requests the reply and does not read it.
func (s *server) stall(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"model":%q,"prompt":[1%s],"stream":true,"echo":true,"max_tokens":%d,"n":%d,"logprobs":20,"temperature":1,"ignore_eos":true}`,
		s.modelName(), strings.Repeat(",2", stalledPrompt-1), stalledTokens, stalledChoices)
	if _, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	return c
}

// metric returns the sum of a metric's series that contain label.
func (s *server) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	_, text := s.get(t, "/metrics")
	sum := 0.0
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, name+"{") && strings.Contains(line, label) {
			var v float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// TestStalledClient checks that the engine completes the reply of a client which does not
// read, then frees its memory, and serves other clients; and that the client later gets the
// whole reply.
func TestStalledClient(t *testing.T) {
	s := start(t, "", tighten)
	c := s.stall(t)
	s.eventually(t, "the engine is done with it", func() bool {
		return s.metric(t, "vllm:request_success_total", `finished_reason="length"`) == stalledChoices
	})
	// The request is counted as finished before its pages are free.
	s.eventually(t, "an unread reply has no pages", func() bool { return s.engine().Stats().KVUsed == 0 })
	if finish, err := s.stream(20, nil); err != nil || finish != "length" {
		t.Errorf("another client: %q, %v", finish, err)
	}
	if _, load := s.get(t, "/load"); load != `{"server_load":1}` {
		t.Fatalf("the stalled reply is not open any more: %s", load)
	}
	if err := c.(*net.TCPConn).SetReadBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	t.Logf("%d bytes", len(text))
	if n := strings.Count(text, `"finish_reason":"length"`); n != stalledChoices || !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("%d bytes with %d ends of choices", len(text), n)
	}
}

// TestStalledForGood checks that a client which does not read for serve.timeouts.write is
// disconnected.
func TestStalledForGood(t *testing.T) {
	s := start(t, `serve: timeouts: write: "100ms"`, tighten)
	s.stall(t)
	s.eventually(t, "it is dropped", func() bool {
		_, load := s.get(t, "/load")
		return load == `{"server_load":0}` && s.engine().Stats().Running == 0 && s.metric(t, "vllm:request_success_total", "") == stalledChoices
	})
}
