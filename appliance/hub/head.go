package hub

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// head requests the size and hash of one file, which the listing of an older hub or a mirror does
// not contain.
func (c *Client) head(ctx context.Context, p *Pull, f File) (File, error) {
	err := c.retry(ctx, func() (bool, error) {
		var err error
		f, err = c.ask(ctx, p, f)
		return false, err
	})
	if err != nil {
		return f, c.explain(p.Name, err)
	}
	return f, nil
}

// ask sends the request. It reads the answer of the hub itself, not that of the storage server that
// the hub redirects to: the headers of the redirect have size and hash.
func (c *Client) ask(ctx context.Context, p *Pull, f File) (File, error) {
	at := c.resolve(p, f)
	for range maxRedirects {
		r, err := http.NewRequestWithContext(ctx, http.MethodHead, at, nil)
		if err != nil {
			return f, err
		}
		r.Header.Set("User-Agent", c.Agent)
		r.Header.Set("Accept-Encoding", "identity")
		if c.Token != "" && c.atEndpoint(r.URL) {
			r.Header.Set("Authorization", "Bearer "+c.Token)
		}
		res, err := c.http.Do(r)
		if err != nil {
			return f, err
		}
		res.Body.Close()
		next := res.Header.Get("Location")
		redirects := res.StatusCode >= 300 && res.StatusCode < 400 && next != ""
		if !redirects {
			if err := check(res); err != nil {
				return f, err
			}
		}
		if !redirects || res.Header.Get("X-Linked-Etag") != "" {
			return fromHeaders(p, f, res.Header, redirects)
		}
		to, err := r.URL.Parse(next)
		if err != nil || !c.atEndpoint(to) {
			return f, p.Name.errorf(Untrusted, "the hub redirects to %s and sends no hash of %s", hostOf(next), f.Path)
		}
		at = to.String()
	}
	return f, fmt.Errorf("%s redirects more than %d times", hostOf(at), maxRedirects)
}

// fromHeaders returns f with size and hash from the headers.
func fromHeaders(p *Pull, f File, h http.Header, redirects bool) (File, error) {
	if commit := h.Get("X-Repo-Commit"); commit != "" && commit != p.Commit {
		return f, p.Name.errorf(Untrusted, "commit %s was requested and the hub sent %.60q", p.Commit, commit)
	}
	id, length := h.Get("X-Linked-Etag"), h.Get("X-Linked-Size")
	if id == "" {
		id = h.Get("ETag")
	}
	if length == "" && !redirects {
		length = h.Get("Content-Length")
	}
	f.Blob = strings.Trim(strings.TrimPrefix(id, "W/"), `"`)
	n, err := strconv.ParseInt(length, 10, 64)
	if err != nil {
		n = -1
	}
	f.Size = n
	return f, nil
}
