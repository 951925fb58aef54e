package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"vapp.dev/tools/bench/report"
	"vapp.dev/tools/sse"
)

// send is one prepared request.
type send struct {
	server        *Server
	params        *RequestParams
	body          []byte
	id            string
	input, output int
}

// unknown is an output length that the server did not report.
const unknown = -1

var errTimeout = errors.New("timeout")

// errOver means that the answer continues after [DONE].
var errOver = errors.New("over")

// An answer ends with [DONE]. Records after it are read so that the connection can be reused, up to
// afterDone records and for at most endAfterDone; then the connection is closed.
const (
	afterDone    = 64
	endAfterDone = 250 * time.Millisecond
)

// failure returns a Failure with a reason and a detail.
func failure(reason, format string, args ...any) *report.Failure {
	return &report.Failure{Reason: reason, Detail: clip(fmt.Sprintf(format, args...))}
}

// clip shortens s to one printable line.
func clip(s string) string {
	const most = 200
	s = report.Printable(strings.Join(strings.Fields(s), " "))
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// do sends the request and reads the answer to its end. Times are relative to begin.
func (s *send) do(ctx context.Context, begin time.Time) report.Trace {
	t := report.Trace{Input: s.input}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.server.BaseURL+s.server.Endpoint, bytes.NewReader(s.body))
	if err != nil {
		t.Failure = failure("bad address", "%v", err)
		return t
	}
	s.server.head(req)
	req.Header.Set("X-Request-Id", s.id)
	start := time.Now()
	t.Start = start.Sub(begin).Seconds()
	resp, err := s.server.Client.Do(req)
	if err != nil {
		t.Failure = connectFailure(ctx, err)
	} else {
		s.answer(ctx, giveUp, resp, start, &t)
		resp.Body.Close()
	}
	if t.Failure != nil {
		t.Latency, t.Output = time.Since(start).Seconds(), 0
	}
	return t
}

// connectFailure returns the failure of a request without an answer.
func connectFailure(ctx context.Context, err error) *report.Failure {
	var inURL *url.Error
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	var op *net.OpError
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		return failure("timeout", "the time of --request-timeout-sec was over")
	case errors.Is(err, io.EOF):
		return failure("connection closed", "the server closed it without an answer")
	case errors.As(err, &op):
		return failure("connection failed", "%s: %v", op.Op, op.Err)
	}
	return failure("connection failed", "%v", err)
}

// answer reads a response; giveUp cancels the request.
func (s *send) answer(ctx context.Context, giveUp context.CancelCauseFunc, resp *http.Response, start time.Time, t *report.Trace) {
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 8<<10))
		t.Failure = failure(fmt.Sprintf("HTTP %d", resp.StatusCode), "%s", answerText(resp, text))
		return
	}
	if s.params.Backend == Embeddings {
		s.embedding(ctx, resp.Body, start, t)
		return
	}
	s.stream(ctx, giveUp, resp, start, t)
}

// answerText describes an answer without a result: its redirect target or its error message.
func answerText(resp *http.Response, text []byte) string {
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		return "it redirects to " + to + "; give the right address as --base-url and --endpoint"
	}
	return message(text)
}

// message returns the message of an error's body.
func message(body []byte) string {
	var c chunk
	if c.read(body) == nil && c.failed != nil {
		return string(c.failed)
	}
	return string(body)
}

// maxAnswer bounds an answer that is not a stream, in bytes.
const maxAnswer = 64 << 20

func (s *send) embedding(ctx context.Context, body io.Reader, start time.Time, t *report.Trace) {
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		t.Failure = endFailure(ctx, err)
		return
	}
	t.Latency = time.Since(start).Seconds()
	t.TTFT = t.Latency
	var reply struct {
		Data  []struct{ Embedding json.RawMessage }
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	if err := json.Unmarshal(text, &reply); err != nil || len(reply.Data) == 0 || len(reply.Data[0].Embedding) == 0 {
		t.Failure = failure("no embedding", "%s", text)
		return
	}
	if reply.Usage.PromptTokens > 0 {
		t.Input = reply.Usage.PromptTokens
	}
}

// readers are reused between requests; 16 KiB hold about fifty chunks.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 16<<10) }}

// stream reads an event stream to its end.
func (s *send) stream(ctx context.Context, giveUp context.CancelCauseFunc, resp *http.Response, start time.Time, t *report.Trace) {
	in := readers.Get().(*bufio.Reader)
	in.Reset(resp.Body)
	defer func() { in.Reset(nil); readers.Put(in) }()
	f := following{start: start, t: t, chat: s.params.Backend == Chat, asked: s.output}
	e := sse.NewReader(in)
	for {
		over := f.done
		record, failed, err := e.Next()
		if err == nil && failed {
			err = failure("error in the stream", "%s", message(record))
		}
		if err == nil {
			err = f.take(record, time.Now())
		}
		if f.done && !over {
			defer time.AfterFunc(endAfterDone, func() { giveUp(errOver) }).Stop()
		}
		if err == nil {
			continue
		}
		var fail *report.Failure
		switch {
		case err == io.EOF, f.done && (err == errOver || errors.Is(err, sse.ErrSize) || context.Cause(ctx) == errOver):
			t.Failure = f.end(resp.Header, e.Other())
		case errors.As(err, &fail):
			t.Failure = fail
		case errors.Is(err, sse.ErrSize):
			t.Failure = failure("broken SSE record", "%v", err)
		default:
			t.Failure = endFailure(ctx, err)
		}
		t.Text = string(f.chunk.text)
		return
	}
}

// endFailure returns the failure of an answer that ended early.
func endFailure(ctx context.Context, err error) *report.Failure {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return failure("closed early", "the connection ended in the middle of the answer")
	}
	return connectFailure(ctx, err)
}

// following is the state of a stream being read.
type following struct {
	start  time.Time
	last   time.Time // time of the last chunk with choices
	t      *report.Trace
	chat   bool
	asked  int // tokens
	chunk  chunk
	chunks int
	// done: [DONE] was received; closed: a finish_reason or usage was received.
	done, closed, usage bool
	after               int // records after [DONE]
}

// take handles a record received at time at.
func (f *following) take(record []byte, at time.Time) error {
	if f.done {
		if f.after++; f.after > afterDone {
			return errOver
		}
		return nil
	}
	if f.done = string(bytes.TrimSpace(record)) == "[DONE]"; f.done {
		return nil
	}
	c := &f.chunk
	if err := c.read(record); err != nil {
		return failure(broken(err), "%v in %s", err, record)
	}
	switch {
	case c.failed != nil:
		return failure("error in the stream", "%s", c.failed)
	case c.choices:
		f.token(at)
	}
	if c.completion > f.asked {
		return failure("impossible usage", "%d tokens generated, %d were asked for", c.completion, f.asked)
	}
	if c.completion > 0 { // as in vLLM, 0 next to chunks is no count
		f.t.Output, f.usage = c.completion, true
	}
	f.closed = f.closed || c.finished || c.completion >= 0
	if f.chat || c.choices {
		f.t.Latency = at.Sub(f.start).Seconds()
	}
	if most := 4*f.asked + 64; f.chunks > most {
		return failure("endless stream", "more than %d chunks for %d tokens", most, f.asked)
	}
	return nil
}

func (f *following) token(at time.Time) {
	if f.chunks++; f.chunks == 1 {
		f.t.TTFT = at.Sub(f.start).Seconds()
		f.t.ITL = make([]float64, 0, min(f.asked, 4096))
	} else {
		f.t.ITL = append(f.t.ITL, at.Sub(f.last).Seconds())
	}
	f.last = at
}

// end returns the failure of a stream that ended without a transport error. Where the answer is no
// event stream it describes the answer by its headers and first lines.
func (f *following) end(head http.Header, other []byte) *report.Failure {
	switch {
	case f.chunks == 0 && other != nil:
		kind := "an answer without a Content-Type"
		if of := head.Get("Content-Type"); of != "" {
			kind = of
		}
		if coding := head.Get("Content-Encoding"); coding != "" {
			kind += ", encoded as " + coding
		}
		return failure("no token", "the answer is no event stream; check --backend and --endpoint: %s: %s", kind, message(other))
	case f.chunks == 0:
		return failure("no token", "the stream ended without a chunk that has choices")
	case !f.done && !f.closed:
		return failure("closed early", "the stream ended without [DONE], finish_reason or usage, after %d chunks", f.chunks)
	}
	if !f.usage {
		f.t.Output = unknown
	}
	return nil
}

func transport(insecure bool) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 1 << 16,
		IdleConnTimeout:     90 * time.Second,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: insecure},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1 over TLS too: one connection for each request
		ReadBufferSize:      16 << 10,
	}
}
