// Package fetch reads the media that requests name by URL: over HTTP from allowed domains, from
// an allowed folder, and out of data: URLs.
//
// Clients choose the URLs, so the package is a guard first. An HTTP request goes to a domain of
// the policy only, and to no address inside of a network: the check is on the address that a
// socket connects to, after names are resolved, at each hop. It must not decode media, cache
// them, or know where a URL came from. Start reading at Fetcher.Get.
package fetch

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Policy says what may be fetched. The zero Policy allows data: URLs only.
type Policy struct {
	// AllowedDomains are the host names that HTTP URLs may have, as vLLM's
	// --allowed-media-domains; none: no HTTP.
	AllowedDomains []string
	// AllowedPath is the folder that file: URLs may name files in; "": no files.
	AllowedPath string
	// Redirects is whether redirects are followed, each hop under the same rules.
	Redirects bool
	// MaxBytes is the maximum size of an item; 0: unlimited.
	MaxBytes int64
}

// Item is what a URL led to.
type Item struct {
	Data []byte
	Type string // media type as the source states it; "": it states none
}

// Reserve asks for the memory of n more bytes before they are read. Its error ends the fetch
// and is the fetch's error.
type Reserve func(n int64) error

// Fetcher fetches under one Policy. It may be used from any goroutine.
type Fetcher struct {
	policy   Policy
	domains  map[string]bool // as host returns them
	root     *os.Root        // of AllowedPath; nil: none
	prefixes []string        // AllowedPath as given, and without symbolic links
	dialer   *net.Dialer
	client   *http.Client
	blocked  func(netip.AddrPort) bool
}

// New returns a Fetcher. It opens AllowedPath.
func New(p Policy) (*Fetcher, error) {
	f := &Fetcher{policy: p, domains: map[string]bool{}, blocked: func(a netip.AddrPort) bool { return Blocked(a.Addr()) }}
	for _, d := range p.AllowedDomains {
		name, err := Domain(d)
		if err != nil {
			return nil, err
		}
		f.domains[name] = true
	}
	if p.AllowedPath != "" {
		if err := f.openRoot(p.AllowedPath); err != nil {
			return nil, err
		}
	}
	f.dialer = &net.Dialer{Timeout: 10 * time.Second, Control: f.control, Resolver: &net.Resolver{PreferGo: true}}
	f.client = &http.Client{
		Transport: &http.Transport{
			// No proxy: it would connect in the server's place, past the check of addresses.
			Proxy: nil, DialContext: f.dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, MaxConnsPerHost: 32, IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return f, nil
}

// openRoot opens the folder of file: URLs.
func (f *Fetcher) openRoot(folder string) error {
	abs, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return err
	}
	f.prefixes = []string{abs, real}
	f.root, err = os.OpenRoot(real)
	return err
}

// Close closes the folder and idle connections. Fetches that run end on their own.
func (f *Fetcher) Close() error {
	f.client.CloseIdleConnections()
	if f.root != nil {
		return f.root.Close()
	}
	return nil
}

// Get returns the item of a URL. It takes as long as ctx allows. reserve, if not nil, is called
// before memory is taken. Errors are *Error, or those of reserve.
func (f *Fetcher) Get(ctx context.Context, rawURL string, reserve Reserve) (Item, error) {
	if reserve == nil {
		reserve = func(int64) error { return nil }
	}
	if IsData(rawURL) {
		return f.data(rawURL, reserve)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return Item{}, unprocessable(err, "Failed to fetch media from URL: Invalid URL")
	}
	switch u.Scheme {
	case "http", "https":
		return f.overHTTP(ctx, u, reserve)
	case "file":
		return f.file(u, reserve)
	}
	return Item{}, refused(nil, "The URL must be either a HTTP, data or file URL.")
}

// tooLarge returns the error of an item above MaxBytes, as vLLM words it.
func (f *Fetcher) tooLarge(received int64) *Error {
	return unprocessable(nil, "Failed to fetch media from URL: Remote media download exceeds VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB=%s (received at least %d bytes)",
		mebibytes(f.policy.MaxBytes), received)
}

// over returns whether n bytes are more than the policy allows.
func (f *Fetcher) over(n int64) bool { return f.policy.MaxBytes > 0 && n > f.policy.MaxBytes }

// domainList returns the allowed domains as Python prints a list.
func (f *Fetcher) domainList() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range f.policy.AllowedDomains {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("'" + d + "'")
	}
	return b.String() + "]"
}
