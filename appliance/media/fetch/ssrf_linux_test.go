package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// world is a public server at 127.0.0.1 and a private one at 127.0.0.2, both on one port, and
// the names that lead to them. Only the address of the public one passes as public.
type world struct {
	*Fetcher
	names   *nameServer
	port    string
	private atomic.Int64 // connections to the private server

	mu   sync.Mutex
	seen []*http.Request // of the public server
}

const picture = "a picture"

// newWorld returns a world with a fetcher of the policy.
func newWorld(t *testing.T, p Policy) *world {
	w := &world{names: newNameServer(t)}
	var public, private net.Listener
	for range 100 { // a port that is free at both addresses
		var err error
		if public, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		_, w.port, _ = net.SplitHostPort(public.Addr().String())
		if private, err = net.Listen("tcp4", "127.0.0.2:"+w.port); err == nil {
			break
		}
		public.Close()
	}
	if private == nil {
		t.Fatal("no port is free at both addresses")
	}
	go func() {
		for {
			c, err := private.Accept()
			if err != nil {
				return
			}
			w.private.Add(1)
			c.Close()
		}
	}()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	srv.Listener.Close()
	srv.Listener = public
	srv.Start()
	t.Cleanup(func() { srv.Close(); private.Close() })

	w.names.set("good.test", []string{"127.0.0.1"})
	w.names.set("other.test", []string{"127.0.0.1"})
	w.names.set("inside.test", []string{"127.0.0.2"})
	w.names.set("inside6.test", []string{"::1"})
	w.names.set("metadata.test", []string{"169.254.169.254"})
	w.names.set("mapped.test", []string{"::ffff:127.0.0.2"})
	w.names.set("changes.test", []string{"127.0.0.1"}, []string{"127.0.0.2"})
	w.names.set("both.test", []string{"127.0.0.2", "127.0.0.1"})
	w.names.set("xn--bcher-kva.test", []string{"127.0.0.1"})
	w.names.aliases["alias.test."] = "inside.test."
	f, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	f.dialer.Resolver = w.names.resolver()
	f.blocked = func(a netip.AddrPort) bool {
		return Blocked(a.Addr()) && a.String() != "127.0.0.1:"+w.port
	}
	w.Fetcher = f
	return w
}

// serve redirects /to?URL, and /hops?n n times, and answers the rest with the picture. Each
// connection is for one request, so that each request resolves its name.
func (w *world) serve(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.seen = append(w.seen, r)
	w.mu.Unlock()
	h := out.Header()
	h.Set("Connection", "close")
	h.Set("Set-Cookie", "secret=1; Path=/")
	query := strings.ReplaceAll(r.URL.RawQuery, "PORT", w.port)
	var n int
	switch r.URL.Path {
	case "/to":
		h.Set("Location", query)
		out.WriteHeader(http.StatusFound)
	case "/hops":
		fmt.Sscan(query, &n)
		if n > 0 {
			h.Set("Location", fmt.Sprintf("/hops?%d", n-1))
			out.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		fallthrough
	default:
		fmt.Fprint(out, picture)
	}
}

// get fetches a URL in which PORT stands for the port of both servers.
func (w *world) get(url string) error {
	item, err := w.Get(context.Background(), strings.ReplaceAll(url, "PORT", w.port), nil)
	if err == nil && string(item.Data) != picture {
		return fmt.Errorf("got %q", item.Data)
	}
	return err
}

// domains are the domains of the suite: a careless operator allowed even the private ones.
var domains = []string{"good.test", "inside.test", "inside6.test", "metadata.test", "mapped.test", "changes.test", "both.test", "alias.test", "bücher.test", "localhost",
	"127.0.0.2", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "0.0.0.0", "224.0.0.1", "255.255.255.255",
	"192.0.0.192", "168.63.129.16", "198.18.0.1", "::1", "fe80::1", "fd00:ec2::254", "::ffff:127.0.0.2", "64:ff9b::7f00:2", "2002:7f00:2::1", "2001:0:1::1", "ff02::1", "::7f00:2"}

// The suite of server-side request forgery: no URL reaches the private server.
func TestForgery(t *testing.T) {
	const (
		fine      = ""
		blocked   = "its host has a blocked address"
		domain    = "The URL must be from one of the allowed domains"
		number    = "ends in a number"
		userinfo  = "it has credentials"
		malformed = "Invalid URL"
	)
	for _, c := range []struct {
		url, want string
		reason    Reason
	}{
		// What is allowed, in every spelling.
		{"http://good.test:PORT/a", fine, 0},
		{"HTTP://GOOD.Test:PORT/a", fine, 0},
		{"http://good.test.:PORT/a", fine, 0},
		{"http://good。test:PORT/a", fine, 0},
		{"http://bücher.test:PORT/a", fine, 0},
		{"http://XN--BCHER-KVA.test:PORT/a", fine, 0},
		{"http://good.test:PORT/hops?10", fine, 0},
		{"http://good.test:PORT/a#@inside.test/", fine, 0},
		{"http://both.test:PORT/a", fine, 0}, // it reaches the public one of its addresses

		// Addresses.
		{"http://127.0.0.2:PORT/", blocked, Unprocessable},
		{"http://10.0.0.1/", blocked, Unprocessable},
		{"http://172.16.0.1/", blocked, Unprocessable},
		{"http://192.168.0.1/", blocked, Unprocessable},
		{"http://169.254.169.254/latest/meta-data/", blocked, Unprocessable},
		{"http://100.64.0.1/", blocked, Unprocessable},
		{"http://100.100.100.200/", blocked, Unprocessable},
		{"http://0.0.0.0:PORT/", blocked, Unprocessable},
		{"http://224.0.0.1/", blocked, Unprocessable},
		{"http://255.255.255.255/", blocked, Unprocessable},
		{"http://192.0.0.192/", blocked, Unprocessable},
		{"http://168.63.129.16/", blocked, Unprocessable},
		{"http://198.18.0.1/", blocked, Unprocessable},
		{"http://[::1]:PORT/", blocked, Unprocessable},
		{"http://[fe80::1]/", blocked, Unprocessable},
		{"http://[fd00:ec2::254]/", blocked, Unprocessable},
		{"http://[::ffff:127.0.0.2]:PORT/", blocked, Unprocessable},
		{"http://[::ffff:7f00:2]:PORT/", blocked, Unprocessable},
		{"http://[64:ff9b::7f00:2]/", blocked, Unprocessable},
		{"http://[2002:7f00:2::1]/", blocked, Unprocessable},
		{"http://[2001:0:1::1]/", blocked, Unprocessable},
		{"http://[ff02::1]/", blocked, Unprocessable},
		{"http://[::7f00:2]/", blocked, Unprocessable},
		{"http://１２７.0.0.2:PORT/", blocked, Unprocessable},

		// Other forms of addresses.
		{"http://2130706434:PORT/", number, Unprocessable},
		{"http://0x7f000002:PORT/", number, Unprocessable},
		{"http://0177.0.0.2:PORT/", number, Unprocessable},
		{"http://127.2:PORT/", number, Unprocessable},
		{"http://127.0.0.0x2:PORT/", number, Unprocessable},
		{"http://127.0.0.2.:PORT/", blocked, Unprocessable},
		{"http://[fe80::1%25eth0]/", "zone", Unprocessable},
		{"http://[::1/", malformed, Unprocessable},

		// Names.
		{"http://inside.test:PORT/", blocked, Unprocessable},
		{"http://inside6.test:PORT/", blocked, Unprocessable},
		{"http://metadata.test/", blocked, Unprocessable},
		{"http://mapped.test:PORT/", blocked, Unprocessable},
		{"http://alias.test:PORT/", blocked, Unprocessable},
		{"http://localhost/", blocked, Unprocessable},
		{"http://other.test:PORT/", domain, Refused},
		{"http://a.good.test:PORT/", domain, Refused},
		{"http://good.test.evil.test:PORT/", domain, Refused},
		{"http://evilgood.test:PORT/", domain, Refused},
		{"http://gооd.test:PORT/", domain, Refused}, // Cyrillic letters

		// Forms that parsers read in several ways.
		{"http://good.test@127.0.0.2:PORT/", userinfo, Unprocessable},
		{"http://user:pass@good.test:PORT/", userinfo, Unprocessable},
		{"http://good.test:PORT\\@127.0.0.2:PORT/", malformed, Unprocessable},
		{"http://good.test\t:PORT/", malformed, Unprocessable},
		{"http:good.test:PORT/", "no host", Unprocessable},
		{"http:///good.test", "no host", Unprocessable},
		{"http://:PORT/", "host is invalid", Unprocessable},
		{"http://good%2etest:PORT/", malformed, Unprocessable},
		{"https2://good.test/", "must be either a HTTP, data or file URL", Refused},

		// Redirects.
		{"http://good.test:PORT/to?http://127.0.0.2:PORT/", blocked, Unprocessable},
		{"http://good.test:PORT/to?//127.0.0.2:PORT/", blocked, Unprocessable},
		{"http://good.test:PORT/to?http://169.254.169.254/latest", blocked, Unprocessable},
		{"http://good.test:PORT/to?http://inside.test:PORT/", blocked, Unprocessable},
		{"http://good.test:PORT/to?http://good.test:PORT/to?http://inside.test:PORT/", blocked, Unprocessable},
		{"http://good.test:PORT/to?http://other.test:PORT/", domain, Unprocessable},
		{"http://good.test:PORT/to?http://u:p@good.test:PORT/", userinfo, Unprocessable},
		{"http://good.test:PORT/to?file:///etc/passwd", "leads away from HTTP", Unprocessable},
		{"http://good.test:PORT/to?data:image/png;base64,AAAA", "leads away from HTTP", Unprocessable},
		{"http://good.test:PORT/to?gopher://127.0.0.2:PORT/", "leads away from HTTP", Unprocessable},
		{"http://good.test:PORT/to?http://2130706434:PORT/", number, Unprocessable},
		{"http://good.test:PORT/hops?11", "more than 10 redirects", Unprocessable},
	} {
		w := newWorld(t, Policy{AllowedDomains: domains, Redirects: true})
		err := w.get(c.url)
		var known *Error
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.url, err)
		case c.want != "" && (!errors.As(err, &known) || !strings.Contains(known.Message, c.want) || known.Reason != c.reason):
			t.Errorf("%s: %v, want reason %d: %s", c.url, err, c.reason, c.want)
		case c.want == blocked && strings.Contains(known.Message, "127.0.0"):
			t.Errorf("%s: the error says where the name leads: %s", c.url, known.Message)
		}
		if n := w.private.Load(); n > 0 {
			t.Errorf("%s: %d connections to the private server", c.url, n)
		}
	}
}

// A name that leads elsewhere after its first answer: the next connection is refused, also in
// the middle of redirects.
func TestRebinding(t *testing.T) {
	for _, urls := range [][]string{
		{"http://changes.test:PORT/a", "http://changes.test:PORT/a"},
		{"http://changes.test:PORT/to?http://changes.test:PORT/a"},
		{"http://changes.test:PORT/to?/a"},
	} {
		w := newWorld(t, Policy{AllowedDomains: []string{"changes.test"}, Redirects: true})
		var err error
		for i, u := range urls {
			if err = w.get(u); err != nil && i < len(urls)-1 {
				t.Fatal(err)
			}
		}
		var known *Error
		if !errors.As(err, &known) || !strings.Contains(known.Message, "blocked address") || w.private.Load() > 0 {
			t.Errorf("%q: %v, %d connections to the private server", urls, err, w.private.Load())
		}
		if !strings.Contains(err.Error(), "127.0.0.2") {
			t.Errorf("%q: the cause has no address for the log: %v", urls, err)
		}
	}
}

// Nothing of this server goes along: no credentials, cookies, referrer or proxy.
func TestForwardsNothing(t *testing.T) {
	w := newWorld(t, Policy{AllowedDomains: []string{"good.test"}, Redirects: true})
	for _, v := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(v, "http://127.0.0.2:"+w.port)
	}
	if err := w.get("http://good.test:PORT/to?http://good.test:PORT/a?token=1"); err != nil {
		t.Fatal(err)
	}
	if err := w.get("http://good.test:PORT/b"); err != nil {
		t.Fatal(err)
	}
	if len(w.seen) != 3 || w.private.Load() > 0 {
		t.Fatalf("%d requests, %d to the proxy", len(w.seen), w.private.Load())
	}
	for _, r := range w.seen {
		for _, h := range []string{"Authorization", "Cookie", "Referer", "X-Forwarded-For", "Accept-Encoding"} {
			if v := r.Header.Get(h); v != "" {
				t.Errorf("%s: %s: %s", r.URL, h, v)
			}
		}
		if r.Host != "good.test:"+w.port || r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.Host)
		}
	}
}

// Without redirects the first one ends the fetch; without domains there is no fetch.
func TestOff(t *testing.T) {
	w := newWorld(t, Policy{AllowedDomains: []string{"good.test"}})
	err := w.get("http://good.test:PORT/to?http://good.test:PORT/a")
	if want := "HTTP 302 redirect: this server follows no redirects"; err == nil || !strings.Contains(err.Error(), want) || len(w.seen) != 1 {
		t.Errorf("%v, want %s; %d requests", err, want, len(w.seen))
	}
	w = newWorld(t, Policy{Redirects: true})
	err = w.get("http://good.test:PORT/a")
	if want := "multimodal.allowedDomains"; err == nil || !strings.Contains(err.Error(), want) || len(w.seen) > 0 || w.names.asked["good.test."] > 0 {
		t.Errorf("%v, want %s; %d requests", err, want, len(w.seen))
	}
}
