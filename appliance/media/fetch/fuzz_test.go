package fetch

import (
	"context"
	"encoding/base64"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// FuzzURL holds two properties: errors are known and of one line, and a fetch that is allowed to
// reach nothing reaches nothing.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"data:image/png;base64,YWI=", "data:video/jpeg;base64,YWI=,YWI=", "http://good.test/a", "http://127.0.0.1:1/", "file:///a/b", "http://[::1]/", "http://0x7f.1/", "https://u:p@good.test/#x"} {
		f.Add(s)
	}
	fetcher, err := New(Policy{AllowedDomains: []string{"127.0.0.1", "::1"}, AllowedPath: f.TempDir(), Redirects: true, MaxBytes: 1 << 16})
	if err != nil {
		f.Fatal(err)
	}
	fetcher.blocked = func(netip.AddrPort) bool { return true }
	f.Fuzz(func(t *testing.T, s string) {
		if IsData(s) {
			var known *Error
			list, err := fetcher.List(s, 3, func(int64) error { return nil })
			if err == nil && (len(list) < 1 || len(list) > 3) || err != nil && !errors.As(err, &known) {
				t.Errorf("%q: %d items, %v", s, len(list), err)
			}
		}
		item, err := fetcher.Get(context.Background(), s, nil)
		var known *Error
		switch {
		case err == nil && !IsData(s):
			t.Errorf("%q: fetched %d bytes", s, len(item.Data))
		case err == nil:
			_, text, _ := SplitData(s)
			if want, _ := base64.StdEncoding.DecodeString(text); string(want) != string(item.Data) {
				t.Errorf("%q: %q", s, item.Data)
			}
		case !errors.As(err, &known):
			t.Errorf("%q: unknown error %v", s, err)
		case strings.ContainsAny(known.Message, "\r\n"):
			t.Errorf("%q: %q", s, known.Message)
		}
	})
}

// FuzzHost: the form in which hosts are compared does not change when it is read again, also as
// part of a URL, and is plain ASCII.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"good.test", "BÜCHER.test.", "1.2.3.4", "[::1]", "0x7f.1", "１２７.0.0.1", "a。b", "xn--a", "ß.test"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := host(s)
		if err != nil {
			return
		}
		if again, err := host(name); err != nil || again != name {
			t.Errorf("%q: %q, read again %q, %v", s, name, again, err)
		}
		u, err := url.Parse("http://" + name + ":80/a")
		if err != nil || u.Host != name+":80" || u.User != nil || u.Path != "/a" {
			t.Errorf("%q: %q in a URL: %v, %v", s, name, u, err)
		}
		for _, c := range []byte(name) {
			if c <= ' ' || c >= 0x7f || c >= 'A' && c <= 'Z' {
				t.Errorf("%q: %q", s, name)
			}
		}
	})
}
