package lockfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/tools/lock"
)

// auxiliary are the files of a model's folder, except weights, that serving reads.
var auxiliary = []string{
	"chat_template.jinja", "config.json", "generation_config.json", "model.safetensors.index.json", "tiktoken.model", "tokenizer.json", "tokenizer_config.json",
}

// modelFiles returns the paths of the files that serving the profile reads, by their name in the
// model's folder; none where the model is not on this machine.
func modelFiles(p *appliance.Prepared) (map[string]string, error) {
	out := map[string]string{}
	source := p.Model.Source.Path
	st, err := os.Stat(source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return out, nil
	case err != nil:
		return nil, err
	case !st.IsDir():
		out[filepath.Base(source)] = source
		for _, t := range p.Model.Checkpoint.Tensors() {
			if t.File != "" { // another file of a split model
				out[filepath.Base(t.File)] = t.File
			}
		}
		return out, nil
	}
	for _, name := range auxiliary {
		if st, err := os.Stat(filepath.Join(source, name)); err == nil && st.Mode().IsRegular() {
			out[name] = filepath.Join(source, name)
		}
	}
	if p.Model.Where != engine.FromCheckpoint {
		return out, nil
	}
	for _, t := range p.Model.Checkpoint.Tensors() {
		name, err := filepath.Rel(source, t.File)
		if t.File == "" || err != nil {
			continue
		}
		out[filepath.ToSlash(name)] = t.File
	}
	return out, nil
}

// stamp is the key of a cached hash.
type stamp struct {
	path string
	size int64
	time time.Time
}

// Hasher hashes files and caches the hashes by path, size and modification time.
type Hasher struct {
	// Progress returns a function that shows the progress of one long run of hashing; nil:
	// none is shown.
	Progress func() func(engine.Progress)

	mu    sync.Mutex
	known map[stamp]string
}

// minProgress is the number of bytes to hash from which progress is shown.
const minProgress = 512 << 20

// files returns the files with their hashes, sorted by name. The hash of a file whose size and
// time equal those in locked is taken from there.
func (h *Hasher) files(ctx context.Context, files map[string]string, locked *lock.Lock) ([]lock.File, error) {
	var out []lock.File
	var todo []int
	paths := map[int]string{}
	var total int64
	for name, path := range files {
		st, err := os.Stat(path)
		if err != nil {
			return nil, pathError(path, err)
		}
		out = append(out, lock.File{Name: name, Size: st.Size(), ModTime: st.ModTime().UTC()})
	}
	slices.SortFunc(out, func(a, b lock.File) int { return strings.Compare(a.Name, b.Name) })
	h.preload(files, locked)
	for i, f := range out {
		paths[i] = files[f.Name]
		if out[i].SHA256 = h.cached(stamp{paths[i], f.Size, f.ModTime}); out[i].SHA256 == "" {
			todo = append(todo, i)
			total += f.Size
		}
	}
	report := func(engine.Progress) {}
	if total >= minProgress && h.Progress != nil {
		report = h.Progress()
	}
	return out, h.hash(ctx, out, todo, paths, meter(total, report))
}

// hash hashes the files of todo, up to GOMAXPROCS at once, and caches the hashes.
func (h *Hasher) hash(ctx context.Context, out []lock.File, todo []int, paths map[int]string, read func(int)) error {
	errs := make([]error, len(todo))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for k, i := range todo {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			out[i].SHA256, errs[k] = hashFile(ctx, paths[i], out[i], read)
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range todo {
		h.known[stamp{paths[i], out[i].Size, out[i].ModTime}] = out[i].SHA256
	}
	return nil
}

// meter returns a function that adds up the bytes of several readers and reports the sum.
func meter(total int64, report func(engine.Progress)) func(int) {
	var mu sync.Mutex
	var done int64
	return func(n int) {
		mu.Lock()
		defer mu.Unlock()
		done += int64(n)
		report(engine.Progress{Done: done, Total: total})
	}
}

// preload adds the hashes of locked for these files to the cache.
func (h *Hasher) preload(files map[string]string, locked *lock.Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[stamp]string{}
	}
	if locked == nil {
		return
	}
	for _, f := range locked.Checkpoint.Files {
		if path := files[f.Name]; path != "" {
			h.known[stamp{path, f.Size, f.ModTime.UTC()}] = f.SHA256
		}
	}
}

// cached returns the hash of a file, "" where it is not known.
func (h *Hasher) cached(s stamp) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[s]
}

// hashFile returns the SHA-256 of a file. It fails if the file changes while it is read.
func hashFile(ctx context.Context, path string, as lock.File, read func(int)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", pathError(path, err)
	}
	defer f.Close()
	sum := sha256.New()
	buf := make([]byte, 1<<20)
	var size int64
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := f.Read(buf)
		sum.Write(buf[:n])
		size += int64(n)
		read(n)
		if err == io.EOF {
			break
		} else if err != nil {
			return "", pathError(path, err)
		}
	}
	st, err := f.Stat()
	if err != nil {
		return "", pathError(path, err)
	}
	if size != as.Size || st.Size() != as.Size || !st.ModTime().Equal(as.ModTime) {
		return "", fmt.Errorf("%s: changed while it was read", path)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
