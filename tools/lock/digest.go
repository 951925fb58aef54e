package main

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
	"vapp.dev/appliance/lock"
	"vapp.dev/engine"
)

// readBeside are the files of a model's folder that are read besides weights.
var readBeside = []string{
	"chat_template.jinja", "config.json", "generation_config.json", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
}

// modelFiles are the files that serving the profile reads, by their name in the
// model's folder; none where the model is not here.
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
		return out, nil
	}
	for _, name := range readBeside {
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

// stamp is what a file's hash is remembered by.
type stamp struct {
	path string
	size int64
	time time.Time
}

// digests hashes files and remembers what it hashed.
type digests struct {
	mu       sync.Mutex
	known    map[stamp]string
	progress func() func(engine.Progress) // makes one for a long run
}

// longHash is from how many bytes on progress is shown.
const longHash = 512 << 20

// of lists the files with their hashes. Those that the lock has with the same
// size and time are taken from it.
func (d *digests) of(ctx context.Context, files map[string]string, locked *lock.Lock) ([]lock.File, error) {
	var out []lock.File
	var todo []int
	paths := map[int]string{}
	var total int64
	for name, path := range files {
		st, err := os.Stat(path)
		if err != nil {
			return nil, unreadable(path, err)
		}
		out = append(out, lock.File{Name: name, Size: st.Size(), ModTime: st.ModTime().UTC()})
	}
	slices.SortFunc(out, func(a, b lock.File) int { return strings.Compare(a.Name, b.Name) })
	d.remember(files, locked)
	for i, f := range out {
		paths[i] = files[f.Name]
		if out[i].SHA256 = d.recall(stamp{paths[i], f.Size, f.ModTime}); out[i].SHA256 == "" {
			todo = append(todo, i)
			total += f.Size
		}
	}
	report := func(engine.Progress) {}
	if total >= longHash && d.progress != nil {
		report = d.progress()
	}
	return out, d.hash(ctx, out, todo, paths, meter(total, report))
}

// hash reads the files of todo, as many at once as there are processors.
func (d *digests) hash(ctx context.Context, out []lock.File, todo []int, paths map[int]string, read func(int)) error {
	errs := make([]error, len(todo))
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for k, i := range todo {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			out[i].SHA256, errs[k] = hashFile(ctx, paths[i], out[i], read)
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range todo {
		d.known[stamp{paths[i], out[i].Size, out[i].ModTime}] = out[i].SHA256
	}
	return nil
}

// meter adds up what several readers report.
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

// remember takes over what a lock knows of these files.
func (d *digests) remember(files map[string]string, locked *lock.Lock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[stamp]string{}
	}
	if locked == nil {
		return
	}
	for _, f := range locked.Checkpoint.Files {
		if path := files[f.Name]; path != "" {
			d.known[stamp{path, f.Size, f.ModTime.UTC()}] = f.SHA256
		}
	}
}

func (d *digests) recall(s stamp) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[s]
}

// hashFile is the SHA-256 of a file that stays as it is meanwhile.
func hashFile(ctx context.Context, path string, as lock.File, read func(int)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", unreadable(path, err)
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	var size int64
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		size += int64(n)
		read(n)
		if err == io.EOF {
			break
		} else if err != nil {
			return "", unreadable(path, err)
		}
	}
	st, err := f.Stat()
	if err != nil {
		return "", unreadable(path, err)
	}
	if size != as.Size || st.Size() != as.Size || !st.ModTime().Equal(as.ModTime) {
		return "", fmt.Errorf("%s: changed while it was read", path)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
