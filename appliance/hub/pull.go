package hub

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Pull is a model whose download has begun: its files are known, and the small ones are downloaded.
type Pull struct {
	Name   Name
	Commit string
	// Dir is the snapshot folder. It has the config from the start, so that the model can be
	// planned before its weights are downloaded. For a GGUF file it is empty until then.
	Dir string
	// Missing is the bytes of weights that are not downloaded yet.
	Missing int64

	c     *Client
	files picked
	m     *meter
}

// Config reports whether Dir has a config to plan from.
func (p *Pull) Config() bool { return !p.files.gguf }

// Files returns all files of the model, the weights last.
func (p *Pull) Files() []File { return p.files.files() }

// Open requests the list of files of the model at its revision, checks the free disk space, and
// downloads the small files. Its errors are *Error, except when ctx ended.
func (c *Client) Open(ctx context.Context, n Name, w Want) (*Pull, error) {
	if c.Cache == "" {
		return nil, n.errorf(CacheFailed, "there is no folder for the cache: set HF_HUB_CACHE or HOME")
	}
	l, err := c.List(ctx, n)
	if err != nil {
		return nil, err
	}
	p := &Pull{Name: n, Commit: l.Commit, Dir: c.snapshot(n, l.Commit), c: c, m: &meter{tell: c.Progress}}
	if p.files, err = pick(n, w, l.Files, func(index File) ([]byte, error) { return p.index(ctx, index) }); err != nil {
		return nil, err
	}
	if err := p.complete(ctx, p.files.small); err != nil {
		return nil, err
	}
	if err := p.complete(ctx, p.files.weights); err != nil {
		return nil, err
	}
	for _, f := range p.files.weights {
		p.Missing += c.missing(n, f)
	}
	if err := p.checkSpace(); err != nil {
		return nil, err
	}
	return p, p.fetch(ctx, p.files.small)
}

// index downloads the safetensors index, which lists the weight files.
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

// complete requests the sizes and hashes that the listing lacks.
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
			return p.Name.errorf(Untrusted, "the hub sends no SHA-256 or git hash of %s (but %.80q), so it cannot be verified", f.Path, f.Blob)
		case f.Size < 0 || f.Size > maxSize:
			return p.Name.errorf(Untrusted, "the hub says that %s has %d bytes", f.Path, f.Size)
		}
	}
	return nil
}

// Weights downloads the missing files and returns the complete model.
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

// fetch downloads files into the snapshot. It creates the links after all files are complete, so
// that no incomplete snapshot is taken for a complete one.
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
	p.c.writeTag()
	for _, f := range list {
		if err := p.c.link(p.Name, p.Commit, f); err != nil {
			return p.failed(err)
		}
	}
	return nil
}

// failed returns an error of the cache's disk.
func (p *Pull) failed(err error) error {
	e := p.Name.errorf(CacheFailed, "the cache cannot be written: %v; set HF_HUB_CACHE to a folder that can", err)
	e.Cause = err
	return e
}

// checkSpace fails where the disk has too little free space for the missing files.
func (p *Pull) checkSpace() error {
	need := p.Missing
	for _, f := range p.files.small {
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
		return p.Name.errorf(NoSpace, "the download needs %s and %s has %s free; free disk space, or set HF_HUB_CACHE to a larger disk", size(need), p.c.Cache, size(free))
	}
	return nil
}

// size formats a number of bytes.
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

// meter adds up the progress of all files. It reports nothing while nothing is expected.
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

// add adds n bytes; a negative n subtracts bytes that were discarded.
func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.Done += n
	m.report()
}

// again subtracts the bytes that came and expects the whole file again.
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
