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

// access is which keys are accepted and which certificate is shown. It is taken from the
// newest text of the profile that says something of it, also where the rest is refused, and
// from the files that this names.
type access struct {
	read readFunc
	now  func() time.Time

	said    *schema.Access // what grants and pair are from
	grants  []grant
	guarded bool // requests need a key, also where none is left
	keys    []string
	files   map[string]*keyFile

	pair certificate
}

// grant is an element of serve.apiKeys that is in force.
type grant struct {
	schema.Key
	at   string          // its place in the profile
	path string          // of its file; "": it names none
	only map[string]bool // nil: all its keys; else only those in it, because it may not add any
}

// keyFile is what was read last of a file of keys.
type keyFile struct {
	keys []string
	gone time.Time // since when it is missing or holds no key; zero: it holds some
}

// missingGrace is for how long the keys of a file that is missing or empty stay in force: a
// file that is written again may be so for a moment.
const missingGrace = time.Second

// trouble is what is wrong with a file of keys or of the certificate.
type trouble struct {
	part  string // metrics.PartKeys, metrics.PartCertificate
	err   error
	wait  time.Duration // after which to look again; 0: the usual backoff
	stale bool          // what is in force may differ from what the file says
	read  bool          // a file could not be read
}

// newAccess is the access of a profile that is in force.
func newAccess(read readFunc, now func() time.Time) *access {
	return &access{read: read, now: now, files: map[string]*keyFile{}}
}

// begin takes over a profile at start: everything that it names must be there.
func (a *access) begin(p *schema.Profile) error {
	a.take(p.Access(), granted)
	for _, t := range a.refresh() {
		return t.err
	}
	return nil
}

// trust is how much of what a profile says of keys counts.
type trust int

const (
	revoke  trust = iota // it only takes away keys: profile, policy or lock refuse the list
	extend               // its keys count, but it does not open the server
	granted              // the profile is in force
)

// take makes what the profile says the access, as far as it is trusted, and returns a note
// where that is not all of it. refresh reads the files.
func (a *access) take(s *schema.Access, t trust) (note string) {
	if s.TLS != nil && t != revoke {
		a.pair.certFile, a.pair.keyFile = s.Path(s.TLS.CertFile), s.Path(s.TLS.KeyFile)
		a.pair.names = *s.TLS
	}
	open := len(a.grants) == 0
	a.said = s
	switch {
	case t == granted:
		a.grants, a.guarded = grantsOf(s), s.Listed
	case !s.Listed: // without a list there is no guard, and that only with a profile that is in force
		if !open {
			return noteOpen
		}
	case t == extend && s.Whole:
		a.grants, a.guarded = grantsOf(s), true
	default:
		if a.guarded {
			a.grants = a.narrowed(s)
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

// narrowed are the grants of s that add no key to those in force.
func (a *access) narrowed(s *schema.Access) []grant {
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

// refresh reads the files and returns what is wrong with them. Keys of a file that cannot be
// read stay as they were read last.
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
				list = append(list, trouble{part: metrics.PartKeys, err: a.said.Reject(g.at, "%s holds no key; set the variable, or remove it from serve.apiKeys", g.Key)})
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

// readKeys are the keys of a grant's file, one a line.
func (a *access) readKeys(g grant) ([]string, *trouble) {
	f := a.files[g.path]
	if f == nil {
		f = &keyFile{}
		a.files[g.path] = f
	}
	text, err := a.read(g.path)
	keys := lines(text)
	if err == nil && len(keys) > 0 {
		f.keys, f.gone = keys, time.Time{}
		return f.keys, nil
	}
	t := &trouble{part: metrics.PartKeys, stale: true, read: err != nil}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.err = a.said.Reject(g.at, "%v; the keys that were read last stay in force until it can be read", err)
		if f.keys == nil {
			t.err = a.said.Reject(g.at, "%v", err)
		}
		return f.keys, t
	}
	if err == nil {
		err = fmt.Errorf("%s holds no key; write one into it, or remove it from serve.apiKeys", g.Key)
	}
	t.err = a.said.Reject(g.at, "%v", err)
	if f.gone.IsZero() {
		f.gone = a.now()
	}
	if t.wait = missingGrace - a.now().Sub(f.gone); t.wait <= 0 || f.keys == nil {
		f.keys, t.wait, t.stale = nil, 0, false
	}
	return f.keys, t
}

// lines are the lines of a text that are not empty, trimmed.
func lines(text []byte) (out []string) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// certificate is the pair that the server shows, and where it is from.
type certificate struct {
	names             schema.TLS // as the profile writes them
	certFile, keyFile string     // absolute; "": none
	sum               [sha256.Size]byte
	pair              *tls.Certificate
}

// readCertificate reads certificate and key, which must fit each other; the pair that is
// shown stays where they do not.
func (a *access) readCertificate() *trouble {
	c := &a.pair
	if c.certFile == "" {
		return nil
	}
	chain, err := a.read(c.certFile)
	if err != nil {
		return &trouble{part: metrics.PartCertificate, err: a.said.Reject("serve.tls.certFile", "%v", err), stale: true, read: true}
	}
	secret, err := a.read(c.keyFile)
	if err != nil {
		return &trouble{part: metrics.PartCertificate, err: a.said.Reject("serve.tls.keyFile", "%v", err), stale: true, read: true}
	}
	sum := sha256.Sum256(append(append(bytes.Clone(chain), 0), secret...))
	if c.pair != nil && sum == c.sum {
		return nil
	}
	pair, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return &trouble{part: metrics.PartCertificate, stale: true,
			err: a.said.Reject("serve.tls.certFile", "%s and %s are no certificate with its key: %v", c.names.CertFile, c.names.KeyFile, err)}
	}
	c.pair, c.sum = &pair, sum
	return nil
}

// paths are the files that are watched.
func (a *access) paths() []string {
	out := slices.Collect(maps.Keys(a.files))
	if a.pair.certFile != "" {
		out = append(out, a.pair.certFile, a.pair.keyFile)
	}
	return out
}
