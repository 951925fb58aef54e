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

// The reply that a stalled client does not read: 180 kB, most of it the prompt's
// tokens with twenty alternatives each, once for each choice.
const (
	stalledChoices = 3
	stalledPrompt  = 200
	stalledTokens  = 10
)

// tight is a listener whose connections hold little that has not been read.
type tight struct{ net.Listener }

func (l tight) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return c, err
}

func tighten(a *Appliance) { a.listener = tight{a.listener} }

// stall asks for that reply and reads nothing of it.
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

// metric is the sum of a metric's series that hold label.
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

// TestStalledClient: the engine generates all that a client asked for which reads
// none of it, holds nothing for it after that, and serves the others; when the
// client goes on, all of its reply is there.
func TestStalledClient(t *testing.T) {
	s := start(t, "", tighten)
	c := s.stall(t)
	s.eventually(t, "the engine is done with it", func() bool {
		return s.metric(t, "vllm:request_success_total", `finished_reason="length"`) == stalledChoices
	})
	// What has ended is counted before its pages are back.
	s.eventually(t, "a reply that nobody reads holds no pages", func() bool { return s.engine.Stats().KVUsed == 0 })
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

// TestStalledForGood: who takes nothing for as long as serve.timeouts.write is
// dropped.
func TestStalledForGood(t *testing.T) {
	s := start(t, `serve: timeouts: write: "100ms"`, tighten)
	s.stall(t)
	s.eventually(t, "it is dropped", func() bool {
		_, load := s.get(t, "/load")
		return load == `{"server_load":0}` && s.engine.Stats().Running == 0 && s.metric(t, "vllm:request_success_total", "") == stalledChoices
	})
}
