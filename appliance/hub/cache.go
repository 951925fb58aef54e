package hub

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// folder returns the cache folder of a repository.
func (s Settings) folder(n Name) string {
	return filepath.Join(s.Cache, "models--"+strings.ReplaceAll(n.Repo, "/", "--"))
}

// snapshot returns the folder with the files of a commit.
func (s Settings) snapshot(n Name, commit string) string {
	return filepath.Join(s.folder(n), "snapshots", commit)
}

// blob returns the path of the blob with this id.
func (s Settings) blob(n Name, id string) string {
	return filepath.Join(s.folder(n), "blobs", id)
}

// Cached is a model whose files are all in the cache.
type Cached struct {
	Path   string // the folder with its files, or the GGUF file
	Commit string
}

// Find looks for a model in the cache, without network access. ok is false where files are missing.
func (s Settings) Find(n Name, w Want) (c Cached, ok bool) {
	if s.Cache == "" {
		return c, false
	}
	commit, ok := s.commit(n)
	if !ok {
		return c, false
	}
	dir := s.snapshot(n, commit)
	list, err := local(dir)
	if err != nil {
		return c, false
	}
	picked, err := pick(n, w, list, func(index File) ([]byte, error) {
		return readAtMost(filepath.Join(dir, filepath.FromSlash(index.Path)), maxIndex)
	})
	if err != nil {
		return c, false
	}
	return Cached{picked.path(dir), commit}, true
}

// FindFile returns the folder of a model's files in the cache if it has the named one.
func (s Settings) FindFile(n Name, name string) (dir string, ok bool) {
	commit, ok := s.commit(n)
	if s.Cache == "" || !ok {
		return "", false
	}
	dir = s.snapshot(n, commit)
	st, err := os.Stat(filepath.Join(dir, name))
	return dir, err == nil && st.Mode().IsRegular()
}

// commit returns the commit that the cache has for n's revision.
func (s Settings) commit(n Name) (string, bool) {
	r := n.revision()
	if commitPattern.MatchString(r) {
		return r, true
	}
	b, err := readAtMost(filepath.Join(s.folder(n), "refs", filepath.FromSlash(r)), 64)
	commit := strings.TrimSpace(string(b))
	return commit, err == nil && commitPattern.MatchString(commit)
}

// local lists the files of a snapshot whose blobs exist.
func local(dir string) ([]File, error) {
	var out []File
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() {
			return nil // a link without its blob
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if len(out) == maxFiles {
			return fs.SkipAll
		}
		out = append(out, File{Path: filepath.ToSlash(rel), Size: st.Size()})
		return nil
	})
	return out, err
}

// tag marks the folder as a cache for backup programs, by the Cache Directory Tagging
// Specification.
const tag = "Signature: 8a477f597d28d172789f06886806bc55\n# Models of the Hugging Face hub: they can be fetched again.\n"

// writeTag writes the tag where it is missing. A failure is ignored: the cache works without it.
func (s Settings) writeTag() {
	f, err := os.OpenFile(filepath.Join(s.Cache, "CACHEDIR.TAG"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return
	}
	_, _ = f.WriteString(tag)
	_ = f.Close()
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return nil, fmt.Errorf("%s is longer than %d bytes", filepath.Base(path), most)
	}
	return b, err
}

// remember writes the commit of a branch or tag to refs.
func (s Settings) remember(n Name, commit string) error {
	r := n.revision()
	if r == commit {
		return nil
	}
	path := filepath.Join(s.folder(n), "refs", filepath.FromSlash(r))
	if b, err := readAtMost(path, 64); err == nil && string(b) == commit {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return replace(path, []byte(commit))
}

// replace writes a file atomically.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		os.Remove(f.Name())
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		os.Remove(f.Name())
		return err
	}
	return nil
}

// link adds a blob to the snapshot: as a relative symlink, or as a hard link where the system has
// no symlinks.
func (s Settings) link(n Name, commit string, f File) error {
	to := filepath.Join(s.snapshot(n, commit), filepath.FromSlash(f.Path))
	blob := s.blob(n, f.Blob)
	if a, err := os.Stat(to); err == nil {
		if b, err := os.Stat(blob); err == nil && os.SameFile(a, b) {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(to), blob)
	if err != nil {
		return err
	}
	// The link is created under a random name and renamed: readers always find a link, and two
	// processes that pull at once do not take each other's.
	made := fmt.Sprintf("%s.%016x.vapp-link", to, rand.Uint64())
	if err := os.Symlink(target, made); err != nil {
		if second := os.Link(blob, made); second != nil {
			return errors.Join(err, second)
		}
	}
	if err := os.Rename(made, to); err != nil {
		os.Remove(made)
		return err
	}
	return nil
}
