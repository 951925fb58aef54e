// Package hubtest is a small Hugging Face hub for tests: the API, the files, and a second server
// for large files. Tests can make its answers fail. It must not be imported by the binary. Start
// reading at Start.
package hubtest

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Hub is a running hub.
type Hub struct {
	URL   string // the endpoint
	Store string // URL of the server of large files

	mu       sync.Mutex
	repos    map[string]*Repo
	fault    func(Request) *Fault
	requests []Request
	blobs    map[*byte]string // ids of large contents, by the address of their first byte
	close    func()
}

// Repo is a repository: its files at each commit.
type Repo struct {
	Gated   bool              // its files need Token
	Private bool              // the API needs Token too
	Token   string            // the accepted token
	Refs    map[string]string // branch or tag to commit
	Trees   map[string]map[string][]byte
	// NoHashes leaves sizes and hashes out of the listing, as some mirrors do.
	NoHashes bool
	// Listing replaces the API's answer.
	Listing []byte
}

// Request is a request that the hub received.
type Request struct {
	Method, Path, Range, Token string
	Store                      bool // sent to the second server
	N                          int  // number of earlier requests with the same method, path and range
}

// Fault changes an answer; zero fields change nothing.
type Fault struct {
	Status     int // answered in place of the content
	Code       string
	RetryAfter string
	Cut        int           // the connection is closed after this many bytes of the body
	Stall      time.Duration // pause before the body
	Flip       bool          // each byte of the body is inverted
	NoRange    bool          // the whole file with status 200, for any range
	Content    []byte        // sent in place of the file
	Redirect   string
}

// Large is the size in bytes from which a file is served by the store, under its SHA-256.
const Large = 1 << 10

// Start runs a hub without repositories. The caller closes it.
func Start() *Hub {
	h := &Hub{repos: map[string]*Repo{}, blobs: map[*byte]string{}}
	hub, store := httptest.NewServer(http.HandlerFunc(h.serve)), httptest.NewServer(http.HandlerFunc(h.serveStore))
	h.URL, h.Store = hub.URL, store.URL
	h.close = func() {
		for _, s := range []*httptest.Server{hub, store} {
			s.CloseClientConnections()
			s.Close()
		}
	}
	return h
}

// Close stops the servers.
func (h *Hub) Close() { h.close() }

// Commit returns the id of the nth commit of any repository.
func Commit(n int) string { return fmt.Sprintf("%040x", 0xc0ffee00+n) }

// Add adds a repository with the files at Commit(0) and branch main.
func (h *Hub) Add(name string, files map[string][]byte) *Repo {
	r := &Repo{Refs: map[string]string{"main": Commit(0)}, Trees: map[string]map[string][]byte{Commit(0): files}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repos[name] = r
	return r
}

// AddDir is Add with the files of a folder.
func (h *Hub) AddDir(name, dir string) (*Repo, error) {
	files := map[string][]byte{}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return h.Add(name, files), nil
}

// Misbehave calls f for every request; f returns nil for a correct answer.
func (h *Hub) Misbehave(f func(Request) *Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = f
}

// Requests returns the requests since the last call.
func (h *Hub) Requests() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.requests
	h.requests = nil
	return out
}

// note records a request and returns the fault of its answer.
func (h *Hub) note(r *http.Request, store bool) Fault {
	q := Request{Method: r.Method, Path: r.URL.Path, Range: r.Header.Get("Range"), Token: r.Header.Get("Authorization"), Store: store}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, old := range h.requests {
		if old.Method == q.Method && old.Path == q.Path && old.Range == q.Range && old.Store == q.Store {
			q.N++
		}
	}
	h.requests = append(h.requests, q)
	if h.fault != nil {
		if f := h.fault(q); f != nil {
			return *f
		}
	}
	return Fault{}
}

// Blob returns the id of a content: SHA-256 where it is large, else git's hash.
func Blob(content []byte) string {
	if len(content) >= Large {
		sum := sha256.Sum256(content)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(content)), content...))
	return hex.EncodeToString(sum[:])
}

// blob is Blob with a cache; h is locked.
func (h *Hub) blob(content []byte) string {
	if len(content) < Large {
		return Blob(content)
	}
	id, ok := h.blobs[&content[0]]
	if !ok {
		id = Blob(content)
		h.blobs[&content[0]] = id
	}
	return id
}

// names returns the file names, sorted.
func names(tree map[string][]byte) []string { return slices.Sorted(maps.Keys(tree)) }
