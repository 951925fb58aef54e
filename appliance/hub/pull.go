package hub

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Pull is a model that is being fetched: what to fetch is known, and its small
// files are there.
type Pull struct {
	Name   Name
	Commit string
	// Dir is the snapshot. It has the config from the start, so that the model can
	// be planned before its weights are fetched; of a GGUF file it has nothing.
	Dir string
	// Missing is how many bytes of weights are still to come.
	Missing int64

	c     *Client
	files picked
	m     *meter
}

// Config reports that Dir has a config that a plan can be made from.
func (p *Pull) Config() bool { return !p.files.gguf }

// Files are all that the model needs, the weights last.
func (p *Pull) Files() []File { return p.files.files() }

// Open asks what the model of that name consists of at its revision, checks that
// the disk has room for it, and fetches its small files. Errors are *Error but
// where ctx ended.
func (c *Client) Open(ctx context.Context, n Name, w Want) (*Pull, error) {
	if c.Cache == "" {
		return nil, n.errorf(CacheFailed, "there is no folder to keep it in: set HF_HUB_CACHE or HOME")
	}
	l, err := c.List(ctx, n)
	if err != nil {
		return nil, err
	}
	p := &Pull{Name: n, Commit: l.Commit, Dir: c.snapshot(n, l.Commit), c: c, m: &meter{tell: c.Progress}}
	if p.files, err = pick(n, w, l.Files, func(index File) ([]byte, error) { return p.index(ctx, index) }); err != nil {
		return nil, err
	}
	if err := p.complete(ctx, p.files.beside); err != nil {
		return nil, err
	}
	if err := p.complete(ctx, p.files.weights); err != nil {
		return nil, err
	}
	for _, f := range p.files.weights {
		p.Missing += c.missing(n, f)
	}
	if err := p.room(); err != nil {
		return nil, err
	}
	return p, p.fetch(ctx, p.files.beside)
}

// index fetches the file that names the others.
func (p *Pull) index(ctx context.Context, f File) ([]byte, error) {
	one := []File{f}
	if err := p.complete(ctx, one); err != nil {
		return nil, err
	}
	if one[0].Size > maxIndex {
		return nil, fmt.Errorf("%d bytes; at most %d are read", one[0].Size, maxIndex)
	}
	if err := p.c.fetch(ctx, p, one[0]); err != nil {
		return nil, err
	}
	return readAtMost(p.c.blob(p.Name, one[0].Blob), maxIndex)
}

// complete asks for the sizes and hashes that the listing lacks.
func (p *Pull) complete(ctx context.Context, list []File) error {
	for i, f := range list {
		if f.Blob == "" || f.Size < 0 {
			var err error
			if list[i], err = p.c.head(ctx, p, f); err != nil {
				return err
			}
		}
		switch f = list[i]; {
		case !blobPattern.MatchString(f.Blob):
			return p.Name.errorf(Untrusted, "the hub gives no SHA-256 or git hash of %s (it says %.80q), so that it cannot be checked", f.Path, f.Blob)
		case f.Size < 0 || f.Size > maxSize:
			return p.Name.errorf(Untrusted, "the hub says that %s has %d bytes", f.Path, f.Size)
		}
	}
	return nil
}

// Weights fetches what is missing and returns where the model lies, whole.
func (p *Pull) Weights(ctx context.Context) (Cached, error) {
	if p.Missing > 0 {
		p.c.say(fmt.Sprintf("fetching %s, commit %s: %s into %s", p.Name, p.Commit, size(p.Missing), p.c.folder(p.Name)))
		p.m.expect(p.Missing)
	}
	if err := p.fetch(ctx, p.files.weights); err != nil {
		return Cached{}, err
	}
	if err := p.c.remember(p.Name, p.Commit); err != nil {
		return Cached{}, p.failed(err)
	}
	return Cached{p.files.path(p.Dir), p.Commit}, nil
}

// fetch brings files into the snapshot; links are made when all of them are
// there, so that no snapshot looks whole before it is.
func (p *Pull) fetch(ctx context.Context, list []File) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, files)
	var all sync.WaitGroup
	for _, f := range list {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() == nil {
				if err := p.c.fetch(ctx, p, f); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.c.tagged()
	for _, f := range list {
		if err := p.c.link(p.Name, p.Commit, f); err != nil {
			return p.failed(err)
		}
	}
	return nil
}

// failed is an error of the cache's disk.
func (p *Pull) failed(err error) error {
	e := p.Name.errorf(CacheFailed, "the cache cannot be written: %v; set HF_HUB_CACHE to a folder that can", err)
	e.Cause = err
	return e
}

// room refuses what the disk cannot hold, before its first byte is asked for.
func (p *Pull) room() error {
	need := p.Missing
	for _, f := range p.files.beside {
		need += p.c.missing(p.Name, f)
	}
	dir := p.c.Cache
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, err := p.c.free(dir)
	if err != nil {
		return p.failed(&fs.PathError{Op: "free space of", Path: dir, Err: err})
	}
	if need > free {
		return p.Name.errorf(NoSpace, "%s are to be fetched and %s has %s free; make room, or set HF_HUB_CACHE to a larger disk", size(need), p.c.Cache, size(free))
	}
	return nil
}

// size is a number of bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	x, u := float64(n), 0
	for x >= 1024 && u < len(units)-1 {
		x, u = x/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", x, units[u])
}

// meter sums progress; nothing is told before something is expected.
type meter struct {
	mu   sync.Mutex
	p    Progress
	tell func(Progress)
}

func (m *meter) expect(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = Progress{Total: n}
	m.report()
}

// add counts bytes that came, and with n < 0 takes back those that were no good.
func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Done += n
	m.report()
}

// again takes back what came and expects all of a file.
func (m *meter) again(came, all int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Done -= came
	if m.p.Total > 0 {
		m.p.Total += all - came
	}
	m.report()
}

func (m *meter) report() {
	if m.tell != nil && m.p.Total > 0 {
		m.tell(Progress{min(max(0, m.p.Done), m.p.Total), m.p.Total})
	}
}
