package appliance

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"vapp.dev/appliance/metrics"
	"vapp.dev/schema"
)

// access holds the accepted keys and the TLS certificate. They come from the newest
// profile text that has these fields, even if the rest of the profile is rejected, and
// from the files that these fields name.
type access struct {
	read readFunc
	now  func() time.Time

	source  *schema.Access // what grants and pair are from
	grants  []grant
	guarded bool // requests need a key, even if no key is left
	keys    []string
	files   map[string]*keyFile

	pair certificate
}

// grant is an element of serve.apiKeys in effect.
type grant struct {
	schema.Key
	at   string          // its field in the profile
	path string          // absolute path of its file; "": none
	only map[string]bool // accept only these keys, so that the grant adds none; nil: all
}

// keyFile holds the last content of a file of keys.
type keyFile struct {
	keys    []string
	missing time.Time // since when the file is missing or has no key; zero: it has keys
}

// missingGrace is the time for which the keys of a missing or empty file stay in effect,
// since a file may be missing for a moment while it is rewritten.
const missingGrace = time.Second

// trouble is a problem with a file of keys or the certificate.
type trouble struct {
	part  string // metrics.PartKeys, metrics.PartCertificate
	err   error
	wait  time.Duration // until the next try; 0: the usual backoff
	stale bool          // the keys or certificate in effect may differ from the file
	read  bool          // a file could not be read
}

// newAccess returns an empty access.
func newAccess(read readFunc, now func() time.Time) *access {
	return &access{read: read, now: now, files: map[string]*keyFile{}}
}

// begin takes the keys and certificate of the first profile. All its files must exist.
func (a *access) begin(p *schema.Profile) error {
	a.take(p.Access(), granted)
	for _, t := range a.refresh() {
		return t.err
	}
	return nil
}

// trust is how much of a profile's key list takes effect.
type trust int

const (
	revoke  trust = iota // it can only remove keys: the profile is not admitted yet
	extend               // it can add keys, but not remove the guard
	granted              // all of it: the profile is in effect
)

// take takes over a profile's keys and certificate as far as the trust allows. It returns
// a note if not all of it took effect. refresh reads the files.
func (a *access) take(s *schema.Access, t trust) (note string) {
	if s.TLS != nil && t != revoke {
		a.pair.certFile, a.pair.keyFile = s.Path(s.TLS.CertFile), s.Path(s.TLS.KeyFile)
		a.pair.names = *s.TLS
	}
	open := len(a.grants) == 0
	a.source = s
	switch {
	case t == granted:
		a.grants, a.guarded = grantsOf(s), s.Listed
	case !s.Listed: // a missing list removes the guard, which needs a profile in effect
		if !open {
			return noteOpen
		}
	case t == extend && s.Whole:
		a.grants, a.guarded = grantsOf(s), true
	default:
		if a.guarded {
			a.grants = a.withoutNewKeys(s)
		}
		return noteRevoked
	}
	return ""
}

func grantsOf(s *schema.Access) []grant {
	var out []grant
	for i, k := range s.Keys {
		g := grant{Key: k, at: fmt.Sprintf("serve.apiKeys[%d]", i)}
		if k.File != "" {
			g.path = s.Path(k.File)
		}
		out = append(out, g)
	}
	return out
}

// withoutNewKeys returns the grants of s, restricted to the keys in effect.
func (a *access) withoutNewKeys(s *schema.Access) []grant {
	inForce := map[string]bool{}
	for _, k := range a.keys {
		inForce[k] = true
	}
	out := grantsOf(s)
	for i, g := range out {
		old := slices.IndexFunc(a.grants, func(o grant) bool { return o.Key == g.Key && o.path == g.path })
		if old >= 0 {
			out[i].only = a.grants[old].only
		} else {
			out[i].only = inForce
		}
	}
	return out
}

// refresh reads the files and returns the problems. Keys of a file that cannot be read
// stay in effect.
func (a *access) refresh() []trouble {
	var list []trouble
	var keys []string
	used := map[string]bool{}
	for _, g := range a.grants {
		var of []string
		switch {
		case g.path != "":
			used[g.path] = true
			var t *trouble
			if of, t = a.readKeys(g); t != nil {
				list = append(list, *t)
			}
		case g.Env != "":
			if v := os.Getenv(g.Env); v != "" {
				of = []string{v}
			} else {
				list = append(list, trouble{part: metrics.PartKeys, err: a.source.Reject(g.at, "%s holds no key; set the variable, or remove it from serve.apiKeys", g.Key)})
			}
		default:
			of = []string{g.Secret()}
		}
		for _, k := range of {
			if (g.only == nil || g.only[k]) && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	maps.DeleteFunc(a.files, func(path string, _ *keyFile) bool { return !used[path] })
	a.keys = keys
	if t := a.readCertificate(); t != nil {
		list = append(list, *t)
	}
	return list
}

// readKeys returns the keys of a grant's file, one in each line.
func (a *access) readKeys(g grant) ([]string, *trouble) {
	f := a.files[g.path]
	if f == nil {
		f = &keyFile{}
		a.files[g.path] = f
	}
	text, err := a.read(g.path)
	keys := lines(text)
	if err == nil && len(keys) > 0 {
		f.keys, f.missing = keys, time.Time{}
		return f.keys, nil
	}
	t := &trouble{part: metrics.PartKeys, stale: true, read: err != nil}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.err = a.source.Reject(g.at, "%v; the keys that were read last stay in force until it can be read", err)
		if f.keys == nil {
			t.err = a.source.Reject(g.at, "%v", err)
		}
		return f.keys, t
	}
	if err == nil {
		err = fmt.Errorf("%s holds no key; write one into it, or remove it from serve.apiKeys", g.Key)
	}
	t.err = a.source.Reject(g.at, "%v", err)
	if f.missing.IsZero() {
		f.missing = a.now()
	}
	if t.wait = missingGrace - a.now().Sub(f.missing); t.wait <= 0 || f.keys == nil {
		f.keys, t.wait, t.stale = nil, 0, false
	}
	return f.keys, t
}

// lines returns the trimmed non-empty lines of a text.
func lines(text []byte) (out []string) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// certificate is the server's certificate and key, and their files.
type certificate struct {
	names             schema.TLS // file names in the profile's form
	certFile, keyFile string     // absolute; "": none
	sum               [sha256.Size]byte
	pair              *tls.Certificate
}

// readCertificate reads certificate and key. If they do not match, the previous pair
// stays in use.
func (a *access) readCertificate() *trouble {
	c := &a.pair
	if c.certFile == "" {
		return nil
	}
	chain, err := a.read(c.certFile)
	if err != nil {
		return &trouble{part: metrics.PartCertificate, err: a.source.Reject("serve.tls.certFile", "%v", err), stale: true, read: true}
	}
	secret, err := a.read(c.keyFile)
	if err != nil {
		return &trouble{part: metrics.PartCertificate, err: a.source.Reject("serve.tls.keyFile", "%v", err), stale: true, read: true}
	}
	sum := sha256.Sum256(append(append(bytes.Clone(chain), 0), secret...))
	if c.pair != nil && sum == c.sum {
		return nil
	}
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return &trouble{part: metrics.PartCertificate, stale: true,
			err: a.source.Reject("serve.tls.certFile", "%s and %s are no certificate with its key: %v", c.names.CertFile, c.names.KeyFile, err)}
	}
	c.pair, c.sum = &pair, sum
	return nil
}

// paths returns the files to watch.
func (a *access) paths() []string {
	out := slices.Collect(maps.Keys(a.files))
	if a.pair.certFile != "" {
		out = append(out, a.pair.certFile, a.pair.keyFile)
	}
	return out
}
