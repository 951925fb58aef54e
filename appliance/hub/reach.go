package hub

import (
	"context"
	"net/http"
	"time"
)

// Reach sends one request without the token to the endpoint and returns the time on the hub's
// clock; the zero time if the hub does not send it. An answer 407 or 5xx is an error.
func (c *Client) Reach(ctx context.Context) (time.Time, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, c.Endpoint, nil)
	if err != nil {
		return time.Time{}, err
	}
	r.Header.Set("User-Agent", c.Agent)
	res, err := c.http.Do(r)
	if err != nil {
		return time.Time{}, err
	}
	res.Body.Close()
	if s := res.StatusCode; s >= http.StatusInternalServerError || s == http.StatusProxyAuthRequired {
		return time.Time{}, &statusError{status: s, url: r.URL} // a proxy's answer
	}
	at, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		at = time.Time{}
	}
	return at, nil
}
