package fetch

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// expect fails the test unless err is an *Error of the reason with the text.
func expect(t *testing.T, what string, err error, reason Reason, text string) {
	t.Helper()
	var known *Error
	if !errors.As(err, &known) || known.Reason != reason || !strings.Contains(known.Message, text) {
		t.Errorf("%s: %v, want reason %d: %s", what, err, reason, text)
	}
	if known != nil && strings.ContainsAny(known.Message, "\n\r") {
		t.Errorf("%s: an error of several lines: %q", what, known.Message)
	}
}

func TestData(t *testing.T) {
	f, err := New(Policy{MaxBytes: 64})
	if err != nil {
		t.Fatal(err)
	}
	big := "data:image/png;base64," + base64.StdEncoding.EncodeToString(make([]byte, 67))
	for _, c := range []struct {
		url, data, mediaType string
		reason               Reason
		text                 string
	}{
		{url: "data:image/png;base64,YWI=", data: "ab", mediaType: "image/png"},
		{url: "DATA:image/png;charset=x;base64,YWJj", data: "abc", mediaType: "image/png"},
		{url: "data:;base64,YR==", data: "a"}, // pybase64 ignores the bits behind the padding too
		{url: "data:image/png;base64,", mediaType: "image/png"},
		{url: "data: image/png ;base64,YWI=", data: "ab", mediaType: " image/png "},
		{url: "data:image/png;base64", reason: Refused, text: "Invalid data URL 'data:image/png;base64': missing ',' separator."},
		{url: "data:a\nb", reason: Refused, text: "Invalid data URL 'data:a?b': missing"},
		{url: "data:image/png,abc", reason: Unsupported, text: "Only base64 data URLs are supported for now."},
		{url: "data:image/png;base64 ,YWI=", reason: Unsupported, text: "Only base64 data URLs"},
		{url: "data:image/png;BASE64,YWI=", reason: Unsupported, text: "Only base64 data URLs"},
		{url: "data:image/png;base64, YWI=", reason: Refused, text: "Non-base64 digit found"},
		{url: "data:image/png;base64,YW\nI=", reason: Refused, text: "Non-base64 digit found"},
		{url: "data:image/png;base64,YWI=\r\n", reason: Refused, text: "Non-base64 digit found"},
		{url: "data:image/png;base64,YWI", reason: Refused, text: "Non-base64 digit found, or incorrect padding"},
		{url: "data:image/png;base64,YW-_", reason: Refused, text: "Non-base64 digit found"},
		{url: "data:image/png;base64,YQ==YQ==", reason: Refused, text: "Non-base64 digit found"},
		{url: big, reason: Unprocessable, text: "exceeds VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB=6.103515625e-05"},
	} {
		item, err := f.Get(context.Background(), c.url, nil)
		if c.text != "" {
			expect(t, c.url, err, c.reason, c.text)
		} else if err != nil || string(item.Data) != c.data || item.Type != c.mediaType {
			t.Errorf("%q: %q of type %q, %v", c.url, item.Data, item.Type, err)
		}
	}
}

// The items of a list end at the given number: what is behind it is not read.
func TestList(t *testing.T) {
	f, err := New(Policy{MaxBytes: 64})
	if err != nil {
		t.Fatal(err)
	}
	none := func(int64) error { return nil }
	for url, want := range map[string]string{
		"data:video/jpeg;base64,YWI=,YWJj,Yg==": "[ab abc b]", "data:video/jpeg;base64,YWI=,YWJj,Yg==,?": "[ab abc b]", "data:video/jpeg;base64,": "[]",
	} {
		if got, err := f.List(url, 3, none); err != nil || fmt.Sprintf("%s", got) != want {
			t.Errorf("%s: %s, %v; want %s", url, got, err, want)
		}
	}
	_, err = f.List("data:video/jpeg;base64,YWI=,?", 3, none)
	expect(t, "a bad frame", err, Refused, "Non-base64 digit found")
	_, err = f.List("data:video/jpeg;base64,"+strings.Repeat(base64.StdEncoding.EncodeToString(make([]byte, 33))+",", 2), 3, none)
	expect(t, "too many bytes", err, Unprocessable, "received at least 66 bytes")
}

// Memory is reserved before it is taken.
func TestReserve(t *testing.T) {
	full := errors.New("no memory")
	f, _ := New(Policy{})
	var asked int64
	if _, err := f.Get(context.Background(), "data:;base64,"+strings.Repeat("AAAA", 100), func(n int64) error { asked += n; return full }); err != full || asked != 300 {
		t.Errorf("%v after %d bytes", err, asked)
	}
	asked = 0
	data, err := f.read(bytes.NewReader(make([]byte, 100<<10)), func(n int64) error { asked += n; return nil })
	if err != nil || len(data) != 100<<10 || asked != 128<<10 || int64(cap(data)) > asked {
		t.Errorf("%d bytes, %d reserved, %v", len(data), asked, err)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	folder, outside := filepath.Join(dir, "media"), filepath.Join(dir, "secret.png")
	for name, text := range map[string]string{"media/a b.png": "ab", "media/sub/c.png": "c", "media/big": strings.Repeat("x", 100), "secret.png": "secret", "mediax/d.png": "d"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"media/in": "sub/c.png", "media/out": "../secret.png", "media/absolute": outside, "media/up": "..", "link": "media", "media/loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skip(err)
		}
	}
	f, err := New(Policy{AllowedPath: filepath.Join(dir, "link"), MaxBytes: 50})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	base := "file://" + filepath.ToSlash(folder)
	const below = "must be a subpath of `--allowed-local-media-path`"
	for _, c := range []struct{ url, data, text string }{
		{url: base + "/a%20b.png", data: "ab"},
		{url: base + "/sub/c.png", data: "c"},
		{url: base + "/sub/../sub/./c.png", data: "c"},
		{url: base + "/in", data: "c"},
		{url: "file://localhost" + filepath.ToSlash(folder) + "/sub/c.png", data: "c"},
		{url: "file://" + filepath.ToSlash(dir) + "/link/sub/c.png", data: "c"},
		{url: base + "/out", text: below},
		{url: base + "/absolute", text: below},
		{url: base + "/up/secret.png", text: below},
		{url: base + "/../secret.png", text: below},
		{url: base + "/%2e%2e/secret.png", text: below},
		{url: base + "/..%2fsecret.png", text: below},
		{url: base + "x/d.png", text: below},
		{url: base, text: below},
		{url: base + "/a%00b", text: below},
		{url: "file:///etc/passwd", text: below},
		{url: "file://etc/passwd", text: "A file URL has no host"},
		{url: "file:a.png", text: "A file URL has no host"},
		{url: base + "/sub", text: "names no regular file"},
		{url: base + "/none.png", text: "names no file"},
		{url: base + "/loop", text: below},
	} {
		item, err := f.Get(context.Background(), c.url, nil)
		if c.text != "" {
			expect(t, c.url, err, Refused, c.text)
		} else if err != nil || string(item.Data) != c.data {
			t.Errorf("%s: %q, %v", c.url, item.Data, err)
		}
	}
	_, err = f.Get(context.Background(), base+"/big", nil)
	expect(t, "big", err, Unprocessable, "received at least 100 bytes")
	off, _ := New(Policy{})
	_, err = off.Get(context.Background(), base+"/in", nil)
	expect(t, "no folder", err, Refused, "Cannot load local files without `--allowed-local-media-path`")
	if _, err := New(Policy{AllowedPath: filepath.Join(dir, "none")}); err == nil {
		t.Error("a folder that is not there is allowed")
	}
}

// local returns a fetcher that may reach the server alone.
func local(t *testing.T, p Policy, h http.HandlerFunc) (*Fetcher, string) {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	u, _ := url.Parse(srv.URL)
	p.AllowedDomains = []string{u.Hostname()}
	f, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	f.blocked = func(a netip.AddrPort) bool { return a.String() != u.Host }
	return f, srv.URL
}

// Statuses and sizes of sources become vLLM's errors.
func TestReplies(t *testing.T) {
	f, base := local(t, Policy{MaxBytes: 1 << 20}, func(w http.ResponseWriter, r *http.Request) {
		var status, size int
		h := w.Header()
		switch fmt.Sscanf(r.URL.Path, "/%d/%d", &status, &size); {
		case r.URL.Path == "/endless":
			for piece := make([]byte, 64<<10); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		case r.URL.Path == "/cut":
			h.Set("Content-Length", "100")
			fmt.Fprint(w, "short")
		case r.URL.Path == "/headers":
			h.Set("X-Big", strings.Repeat("x", 100<<10))
		case r.URL.Path == "/gzip":
			h.Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "bomb")
		case r.URL.Path == "/hang":
			<-r.Context().Done()
		case r.URL.Path == "/drops":
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/announces":
			h.Set("Content-Length", fmt.Sprint(10<<20))
			w.WriteHeader(200)
		default:
			h.Set("Content-Type", "image/x")
			w.WriteHeader(status)
			_, _ = w.Write(make([]byte, size))
		}
	})
	for _, c := range []struct {
		path   string
		reason Reason
		text   string
	}{
		{"/400/0", Unprocessable, "Failed to fetch media from URL: HTTP 400 error"},
		{"/403/0", Unprocessable, "HTTP 403 error"},
		{"/404/0", Unprocessable, "HTTP 404 error"},
		{"/304/0", Unprocessable, "HTTP 304 error"},
		{"/408/0", Failed, "HTTP 408 error"},
		{"/429/0", Failed, "HTTP 429 error"},
		{"/500/0", Failed, "HTTP 500 error"},
		{"/503/0", Failed, "HTTP 503 error"},
		{"/200/1048577", Unprocessable, "Remote media download exceeds VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB=1 (received at least 1048577 bytes)"},
		{"/endless", Unprocessable, "exceeds VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB=1 (received at least 1048577 bytes)"},
		{"/announces", Unprocessable, "(received at least 10485760 bytes)"},
		{"/cut", Failed, "no connection to its source"},
		{"/headers", Failed, "no connection to its source"},
		{"/drops", Failed, "no connection to its source"},
		{"/gzip", Unprocessable, "Content-Encoding"},
	} {
		_, err := f.Get(context.Background(), base+c.path, nil)
		expect(t, c.path, err, c.reason, c.text)
	}
	item, err := f.Get(context.Background(), base+"/200/1048576", nil)
	if err != nil || len(item.Data) != 1<<20 || item.Type != "image/x" {
		t.Errorf("%d bytes of type %q, %v", len(item.Data), item.Type, err)
	}
	late, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = f.Get(late, base+"/hang", nil)
	expect(t, "/hang", err, Failed, "the source did not answer in time")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = f.Get(gone, base+"/hang", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("of a client that left: %v", err)
	}
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	u, _ := url.Parse(closed.URL)
	f.blocked = func(a netip.AddrPort) bool { return a.String() != u.Host }
	_, err = f.Get(context.Background(), closed.URL, nil)
	expect(t, "a closed port", err, Failed, "no connection to its source")
}

func TestDomain(t *testing.T) {
	for in, want := range map[string]string{
		"Example.COM": "example.com", "example.com.": "example.com", "bücher.de": "xn--bcher-kva.de", "a_b.test": "a_b.test",
		"1.2.3.4": "1.2.3.4", "[2001:DB8::1]": "[2001:db8::1]", "2001:db8:0::1": "[2001:db8::1]", "localhost": "localhost",
	} {
		if got, err := Domain(in); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", ".", "*.example.com", "http://example.com", "example.com:80", "example.com/a", "1.2.3", "0x7f.1", "256.1.1.1", "a b", "[::1", "::1]", "[1.2.3.4]", "fe80::1%eth0", "user@example.com", "a..b", "01.2.3.4"} {
		if got, err := Domain(in); err == nil {
			t.Errorf("%q: %q, want an error", in, got)
		}
		if _, err := New(Policy{AllowedDomains: []string{in}}); err == nil {
			t.Errorf("a policy allows %q", in)
		}
	}
}

func TestBlocked(t *testing.T) {
	for _, a := range []string{"8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.0.1.1", "168.63.129.17", "2606:4700::1111", "2a00:1450:4001::1"} {
		if Blocked(netip.MustParseAddr(a)) {
			t.Errorf("%s is blocked", a)
		}
	}
	for _, a := range []string{"0.0.0.1", "127.255.255.255", "239.255.255.255", "192.88.99.1", "203.0.113.7", "64:ff9b:1::1", "100::1", "2001:db8::1", "3fff::1", "fec0::1", "fc00::1", "::", "::ffff:8.8.8.8", "2001:0:8::1", "5f00::1", "2606:4700::1%eth0"} {
		if !Blocked(netip.MustParseAddr(a)) {
			t.Errorf("%s is not blocked", a)
		}
	}
	if !Blocked(netip.Addr{}) {
		t.Error("no address is not blocked")
	}
}
