package fetch

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// maxHops is the maximum number of redirects of a fetch, as of vLLM's HTTP client.
const maxHops = 10

// overHTTP fetches u and what it is redirected to.
func (f *Fetcher) overHTTP(ctx context.Context, u *url.URL, reserve Reserve) (Item, error) {
	if err := f.checkDomain(u); err != nil {
		return Item{}, err
	}
	for hop := 0; ; hop++ {
		resp, err := f.request(ctx, u)
		if err != nil {
			return Item{}, err
		}
		to := resp.Header.Get("Location")
		if to == "" || !isRedirect(resp.StatusCode) {
			item, err := f.reply(ctx, resp, reserve)
			resp.Body.Close()
			return item, err
		}
		resp.Body.Close()
		switch {
		case !f.policy.Redirects:
			return Item{}, unprocessable(nil, "Failed to fetch media from URL: HTTP %d redirect: this server follows no redirects (multimodal.redirects)", resp.StatusCode)
		case hop == maxHops:
			return Item{}, unprocessable(nil, "Failed to fetch media from URL: more than %d redirects", maxHops)
		}
		if u, err = u.Parse(to); err != nil {
			return Item{}, unprocessable(err, "Failed to fetch media from URL: the target of a redirect is an invalid URL")
		}
		if u.Scheme != "http" && u.Scheme != "https" {
			return Item{}, unprocessable(nil, "Failed to fetch media from URL: a redirect leads away from HTTP")
		}
		if err := f.checkDomain(u); err != nil {
			return Item{}, unprocessable(err, "Failed to fetch media from URL: the target of a redirect is not allowed: %s", err.Message)
		}
	}
}

// isRedirect returns whether a status asks for the same request elsewhere.
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// checkDomain refuses a URL whose host is not an allowed domain. It brings the host into the
// form that is compared: the name that is connected to is the one that was checked.
func (f *Fetcher) checkDomain(u *url.URL) *Error {
	if len(f.domains) == 0 {
		return refused(nil, "This server fetches no media over HTTP: send a data: URL, or set multimodal.allowedDomains in its profile.")
	}
	if u.User != nil {
		return unprocessable(nil, "Failed to fetch media from URL: Invalid URL: it has credentials, which this server does not send")
	}
	if u.Opaque != "" || u.Host == "" {
		return unprocessable(nil, "Failed to fetch media from URL: Invalid URL: it has no host")
	}
	name := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		name = "[" + name + "]"
	}
	name, err := host(name)
	if err != nil {
		return unprocessable(err, "Failed to fetch media from URL: Invalid URL: its host is invalid: %v", err)
	}
	if !f.domains[name] {
		return refused(nil, "The URL must be from one of the allowed domains: %s. Input URL domain: %s", f.domainList(), name)
	}
	if port := u.Port(); port != "" {
		name += ":" + port
	}
	u.Host = name
	return nil
}

// request sends a GET for u without credentials, cookies or a referrer.
func (f *Fetcher) request(ctx context.Context, u *url.URL) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, unprocessable(err, "Failed to fetch media from URL: Invalid URL")
	}
	r.Header.Set("User-Agent", "vapp")
	r.Header.Set("Accept", "*/*")
	resp, err := f.client.Do(r)
	if err != nil {
		return nil, connectError(ctx, err)
	}
	return resp, nil
}

// connectError returns the error of a request or of a body that was not read to its end.
func connectError(ctx context.Context, err error) error {
	var blocked *errBlocked
	switch {
	case errors.As(err, &blocked):
		return unprocessable(err, "Failed to fetch media from URL: its host has a blocked address: private, loopback, link-local, multicast and reserved destinations are not allowed")
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil, os.IsTimeout(err):
		return failed(err, "Failed to fetch media from URL: the source did not answer in time")
	}
	return failed(err, "Failed to fetch media from URL: no connection to its source")
}

// reply reads the body of a reply.
func (f *Fetcher) reply(ctx context.Context, r *http.Response, reserve Reserve) (Item, error) {
	switch s := r.StatusCode; {
	case s >= 500, s == http.StatusRequestTimeout, s == http.StatusTooManyRequests:
		return Item{}, failed(nil, "Failed to fetch media from URL: HTTP %d error", s)
	case s < 200 || s >= 300:
		return Item{}, unprocessable(nil, "Failed to fetch media from URL: HTTP %d error", s)
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return Item{}, unprocessable(nil, "Failed to fetch media from URL: the reply has a Content-Encoding, which was not asked for")
	}
	if f.over(r.ContentLength) {
		return Item{}, f.tooLarge(r.ContentLength)
	}
	data, err := f.read(r.Body, reserve)
	var source *readError
	switch {
	case errors.As(err, &source):
		return Item{}, connectError(ctx, source.error)
	case err != nil:
		return Item{}, err
	}
	return Item{Data: data, Type: r.Header.Get("Content-Type")}, nil
}

// readError is an error of the source while it is read.
type readError struct{ error }

// firstPiece is the memory that read begins with.
const firstPiece = 64 << 10

// read returns all of r, within the policy's size. Memory doubles with what has arrived, not with
// what was announced, and is reserved before it is taken.
func (f *Fetcher) read(r io.Reader, reserve Reserve) ([]byte, error) {
	var data []byte
	for {
		if len(data) == cap(data) {
			size := max(firstPiece, 2*cap(data))
			if f.policy.MaxBytes > 0 { // one byte more than allowed, to see that it is too much
				size = min(size, int(min(f.policy.MaxBytes, math.MaxInt-1))+1)
			}
			if err := reserve(int64(size - cap(data))); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case f.over(int64(len(data))):
			return nil, f.tooLarge(int64(len(data)))
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, &readError{err}
		}
	}
}
