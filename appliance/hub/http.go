package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// backoff doubles from half a second to ten seconds, ± 25 %.
func backoff(attempt int) time.Duration {
	d := min(10*time.Second, 500*time.Millisecond<<min(attempt, 10))
	return time.Duration(float64(d) * (0.75 + rand.Float64()/2))
}

// maxRetryAfter bounds the pause that a hub may request.
const maxRetryAfter = 2 * time.Minute

// statusError is an HTTP answer other than success.
type statusError struct {
	status  int
	code    string // X-Error-Code
	message string // X-Error-Message
	after   time.Duration
	url     *url.URL
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answered %d %s", e.url.Host, e.status, http.StatusText(e.status)) + e.note()
}

// note returns the hub's message in parentheses, "" where there is none.
func (e *statusError) note() string {
	if e.message == "" {
		return ""
	}
	return fmt.Sprintf(" (%.200s)", oneLine(e.message))
}

// passing reports whether the same request may succeed later.
func (e *statusError) passing() bool {
	return e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout || e.status >= 500
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return address
}

// errStall means that no bytes came within Settings.Stall.
var errStall = errors.New("no bytes came for too long")

// maxRedirects bounds the redirects of one request.
const maxRedirects = 10

// send makes a request and follows redirects itself: the token is sent to the endpoint only, and a
// redirect from https to http is refused.
func (c *Client) send(ctx context.Context, method, at, byteRange string) (*http.Response, error) {
	for range maxRedirects {
		r, err := http.NewRequestWithContext(ctx, method, at, nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("User-Agent", c.Agent)
		r.Header.Set("Accept-Encoding", "identity")
		if byteRange != "" {
			r.Header.Set("Range", byteRange)
		}
		if c.Token != "" && c.atEndpoint(r.URL) {
			r.Header.Set("Authorization", "Bearer "+c.Token)
		}
		res, err := c.http.Do(r)
		if err != nil {
			return nil, err
		}
		next := res.Header.Get("Location")
		if res.StatusCode < 300 || res.StatusCode > 399 || next == "" {
			return res, nil
		}
		res.Body.Close()
		to, err := r.URL.Parse(next)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s redirects to an invalid address: %.200q", hostOf(at), next)
		case to.Scheme != "http" && to.Scheme != "https", r.URL.Scheme == "https" && to.Scheme == "http":
			return nil, fmt.Errorf("%s redirects from %s to %s, which is not followed", hostOf(at), r.URL.Scheme, to.Scheme)
		}
		at = to.String()
	}
	return nil, fmt.Errorf("%s redirects more than %d times", hostOf(at), maxRedirects)
}

// atEndpoint reports whether u has the scheme, host and port of the endpoint.
func (c *Client) atEndpoint(u *url.URL) bool {
	e, err := url.Parse(c.Endpoint)
	return err == nil && e.Scheme == u.Scheme && strings.EqualFold(e.Host, u.Host) && u.User == nil
}

// check closes an answer other than success and returns it as a statusError.
func check(res *http.Response) error {
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	defer res.Body.Close()
	e := &statusError{status: res.StatusCode, code: res.Header.Get("X-Error-Code"), message: res.Header.Get("X-Error-Message"), url: res.Request.URL}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		e.after = min(maxRetryAfter, time.Duration(min(s, 3600))*time.Second)
	}
	return e
}

// retry calls try until it succeeds, fails permanently, or fails attempts times in a row without
// progress. try reports whether it made progress.
func (c *Client) retry(ctx context.Context, try func() (progress bool, err error)) error {
	for failed := 0; ; {
		progress, err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var status *statusError
		var fatal *Error
		if errors.As(err, &fatal) || errors.As(err, &status) && !status.passing() {
			return err
		}
		if failed++; progress {
			failed = 1
		}
		var name *net.DNSError
		if failed >= attempts || failed >= dnsAttempts && errors.As(err, &name) && name.IsNotFound {
			return err
		}
		pause := c.wait(failed - 1)
		if failed == 1 && status == nil {
			c.say(fmt.Sprintf("%s: %v; trying again for a while", hostOf(c.Endpoint), cause(err)))
		}
		if status != nil && status.after > pause {
			pause = status.after
			c.say(fmt.Sprintf("%s asks to wait %s", status.url.Host, pause))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// dnsAttempts is the number of attempts where the endpoint's name does not exist, as without a network.
const dnsAttempts = 3

// document returns one answer of the API, of bounded size.
func (c *Client) document(ctx context.Context, n Name, at string) ([]byte, error) {
	var body []byte
	err := c.retry(ctx, func() (bool, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		res, err := c.send(ctx, http.MethodGet, at, "")
		if err != nil {
			return false, err
		}
		if err := check(res); err != nil {
			return false, err
		}
		defer res.Body.Close()
		body, err = io.ReadAll(io.LimitReader(c.patient(res.Body, cancel), maxListing+1))
		if err != nil && errors.Is(context.Cause(ctx), errStall) {
			err = errStall
		}
		return false, err
	})
	switch {
	case err != nil:
		return nil, c.explain(n, err)
	case len(body) > maxListing:
		return nil, n.errorf(Untrusted, "the hub's list of files is longer than %d bytes", maxListing)
	}
	return body, nil
}

// patient returns body as a reader that cancels the request when no bytes came for Settings.Stall.
func (c *Client) patient(body io.Reader, cancel context.CancelCauseFunc) io.Reader {
	timer := time.AfterFunc(c.Stall, func() { cancel(errStall) })
	timer.Stop()
	return &watched{body: body, stall: c.Stall, timer: timer}
}

// watched runs its timer while it waits for the body.
type watched struct {
	body  io.Reader
	stall time.Duration
	timer *time.Timer
}

func (w *watched) Read(b []byte) (int, error) {
	w.timer.Reset(w.stall)
	defer w.timer.Stop()
	return w.body.Read(b)
}

// explain returns the error of a request as an Error with a kind and a remedy.
func (c *Client) explain(n Name, err error) error {
	var known *Error
	var status *statusError
	var network net.Error
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &network):
		return err
	case errors.As(err, &status):
		return c.refused(n, status)
	}
	e := n.errorf(Unreachable, "not complete in the cache %s, and %s cannot be reached: %v; try again, set HF_ENDPOINT to a mirror, or copy the cache (HF_HOME) of a machine that ran `vapp pull %s`", c.Cache, hostOf(c.Endpoint), cause(err), n)
	e.Cause = err
	return e
}

// refused returns the Error for an answer with the hub's error code.
func (c *Client) refused(n Name, s *statusError) error {
	page := c.Endpoint + "/" + n.Repo
	who := "anonymously: set HF_TOKEN, or log in with `hf auth login`"
	if c.Token != "" {
		who = "with your token: is it of the right account, and may it read this model?"
	}
	var e *Error
	switch {
	case !c.atEndpoint(s.url): // a storage server: its refusals say nothing about the model
		e = n.errorf(Unreachable, "%v; try again later", s)
	case s.code == "GatedRepo", s.status == http.StatusForbidden && s.code == "":
		e = n.errorf(Gated, "it is gated, and was requested %s; accept its terms at %s first%s", who, page, s.note())
	case s.code == "RevisionNotFound":
		e = n.errorf(BadRevision, "it has no branch, tag or commit %q; see %s/commits/main", n.revision(), page)
	case s.code == "EntryNotFound":
		e = n.errorf(NoFile, "the file is not there any more; try again")
	case s.code == "RepoNotFound" && s.status == http.StatusNotFound, s.code == "" && s.status == http.StatusNotFound:
		e = n.errorf(NotFound, "the hub %s has no such model; mind the spelling, org/name", hostOf(c.Endpoint))
	case s.status == http.StatusUnauthorized && c.Token != "" && s.code == "":
		e = n.errorf(Unauthorized, "the hub does not accept the token; renew HF_TOKEN, or log in with `hf auth login`")
	case s.status == http.StatusUnauthorized, s.code == "RepoNotFound":
		e = n.errorf(NotFound, "the hub has no such model, or it is private and was requested %s", who)
	default:
		e = n.errorf(Unreachable, "%v; try again later", s)
	}
	e.Cause = s
	return e
}

// cause returns a network error without the URL of its request: redirect URLs contain signatures.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		if u.Timeout() {
			return errors.New("no answer in time")
		}
		return u.Err
	}
	return err
}
