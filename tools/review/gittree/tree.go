package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"vapp.dev/appliance/lock"
	"vapp.dev/schema"
)

// What of a commit is laid out.
const (
	maxTreeFiles = 100_000
	maxTreeBytes = 256 << 20
)

// tree is a commit, laid out as far as it is read: every CUE file, lock and
// cue.mod, and what profiles name. Its folder stands below temp where the
// repository's stands below the root, so that "../models" leads from one to the
// same place as from the other.
type tree struct {
	repo    *repository
	temp    string
	root    string // temp + the repository's top
	entries map[string]entry
	mu      sync.Mutex // held while files are added
	laid    map[string]bool
	bytes   int64
}

// entry is a file of a commit.
type entry struct {
	mode, id string
	size     int64
}

func (e entry) link() bool { return e.mode == "120000" }

// layOut writes what of the commit is read anyway.
func (r *repository) layOut(id, temp string) (*tree, error) {
	t := &tree{repo: r, temp: temp, entries: map[string]entry{}, laid: map[string]bool{}}
	t.root = filepath.Join(temp, strings.TrimPrefix(r.top, filepath.VolumeName(r.top)))
	out, err := r.run("ls-tree", "-r", "-z", "-l", "--full-tree", id)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, line := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		head, name, ok := strings.Cut(line, "\t")
		f := strings.Fields(head)
		if !ok || len(f) != 4 || f[1] != "blob" {
			continue // a submodule; or an empty tree
		}
		size, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil || !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, fmt.Errorf("git ls-tree: odd entry %q", line)
		}
		t.entries[name] = entry{f[0], f[2], size}
		if strings.HasSuffix(name, ".cue") || strings.HasSuffix(name, lock.Extension) || strings.HasPrefix(name, "cue.mod/") || strings.Contains(name, "/cue.mod/") || path.Base(name) == "cue.mod" {
			wanted = append(wanted, name)
		}
	}
	if err := os.MkdirAll(t.root, 0o755); err != nil {
		return nil, err
	}
	return t, t.write(wanted)
}

// write lays the files out, and what links among them lead to.
func (t *tree) write(names []string) error {
	c := t.repo.command("cat-file", "--batch")
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	pipe, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	err = t.copy(names, in, bufio.NewReader(pipe))
	in.Close()
	if err != nil {
		_ = c.Process.Kill() // it has nothing more to say
		_ = c.Wait()
		return err
	}
	return c.Wait()
}

func (t *tree) copy(names []string, in io.Writer, out *bufio.Reader) error {
	for i := 0; i < len(names); i++ {
		name := names[i]
		if t.laid[name] {
			continue
		}
		t.laid[name] = true
		if len(t.laid) > maxTreeFiles {
			return fmt.Errorf("--git: more than %d files to read in one commit", maxTreeFiles)
		}
		e := t.entries[name]
		data, err := t.blob(in, out, name, e)
		if err != nil {
			return err
		}
		if !e.link() {
			err = put(t.at(name), data)
		} else if to := path.Join(path.Dir(name), string(data)); path.IsAbs(string(data)) || !filepath.IsLocal(filepath.FromSlash(to)) {
			err = fmt.Errorf("%s: a symlink that leads out of the repository is not followed", name)
		} else {
			names = append(names, t.below(to)...)
			err = link(filepath.FromSlash(string(data)), t.at(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// below are the files of the commit at a path: one, or those in the folder.
func (t *tree) below(name string) []string {
	var names []string
	for n := range t.entries {
		if n == name || strings.HasPrefix(n, name+"/") || name == "." {
			names = append(names, n)
		}
	}
	return names
}

func link(to, at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.Symlink(to, at)
}

// blob asks for one object and reads it.
func (t *tree) blob(in io.Writer, out *bufio.Reader, name string, e entry) ([]byte, error) {
	if t.bytes += e.size; t.bytes > maxTreeBytes {
		return nil, fmt.Errorf("--git: more than %d bytes to read in one commit, at %s", maxTreeBytes, name)
	}
	if _, err := fmt.Fprintln(in, e.id); err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	head, err := out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	if f := strings.Fields(head); len(f) != 3 || f[2] != strconv.FormatInt(e.size, 10) {
		return nil, fmt.Errorf("git cat-file: %s: %s", name, strings.TrimSpace(head))
	}
	data := make([]byte, e.size+1)
	if _, err := io.ReadFull(out, data); err != nil {
		return nil, fmt.Errorf("git cat-file: %s: %w", name, err)
	}
	return data[:e.size], nil
}

func put(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// at is where a file of the commit is laid out.
func (t *tree) at(name string) string { return filepath.Join(t.root, filepath.FromSlash(name)) }

// profiles are those of the commit.
func (t *tree) profiles() []string {
	var out []string
	for name := range t.entries {
		if profilePath(name) && schema.IsProfile(t.at(name)) {
			out = append(out, name)
		}
	}
	return out
}

// provide makes a path that a profile names lead somewhere: into the commit
// where it has such files, else to where they are on this machine. It returns
// the place, which is the machine's where the commit has no part in it.
func (t *tree) provide(file string) (string, error) {
	rel, err := filepath.Rel(t.temp, file)
	if err != nil || !filepath.IsLocal(rel) {
		return file, nil // nowhere below: absolute, or in the working directory
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	real := filepath.Join(filepath.VolumeName(t.repo.top)+string(filepath.Separator), rel)
	if name, err := filepath.Rel(t.root, file); err == nil && filepath.IsLocal(name) {
		if names := t.below(filepath.ToSlash(name)); len(names) > 0 {
			return file, t.write(names)
		}
	}
	if _, err := os.Lstat(file); err == nil {
		return real, nil // made for another profile
	}
	if _, err := os.Stat(real); err != nil {
		return real, nil // a name of the hub
	}
	return real, link(real, file)
}
