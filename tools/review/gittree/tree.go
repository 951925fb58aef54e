package gittree

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

	"vapp.dev/schema"
	"vapp.dev/tools/lock"
)

// Bounds of the files of a commit that are laid out.
const (
	maxTreeFiles = 100_000
	maxTreeBytes = 256 << 20
)

// Tree is a commit whose files are partly laid out: every CUE file, lock file and cue.mod, and
// the paths that profiles name. Below Temp it has the path that the repository has below the
// root of the file system, so that a relative path such as "../models" resolves alike in both.
type Tree struct {
	Temp string // the folder given to LayOut
	Root string // Temp + the repository's Top

	repo    *Repository
	entries map[string]entry
	mu      sync.Mutex // guards laidOut and bytes after LayOut
	laidOut map[string]bool
	bytes   int64
}

// entry is a file or symlink of a commit.
type entry struct {
	mode, id string
	size     int64
}

func (e entry) symlink() bool { return e.mode == "120000" }

// LayOut writes the CUE files, lock files and modules of the commit below temp. Provide adds
// the other paths that a profile names.
func (r *Repository) LayOut(id, temp string) (*Tree, error) {
	t := &Tree{repo: r, Temp: temp, entries: map[string]entry{}, laidOut: map[string]bool{}}
	t.Root = filepath.Join(temp, strings.TrimPrefix(r.Top, filepath.VolumeName(r.Top)))
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
			return nil, fmt.Errorf("git ls-tree: unexpected entry %q", line)
		}
		t.entries[name] = entry{f[0], f[2], size}
		if strings.HasSuffix(name, ".cue") || strings.HasSuffix(name, lock.Extension) || strings.HasPrefix(name, "cue.mod/") || strings.Contains(name, "/cue.mod/") || path.Base(name) == "cue.mod" {
			wanted = append(wanted, name)
		}
	}
	if err := os.MkdirAll(t.Root, 0o755); err != nil {
		return nil, err
	}
	return t, t.write(wanted)
}

// write lays out the named files and the targets of symlinks among them.
func (t *Tree) write(names []string) error {
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
		_ = c.Process.Kill() // its output is not needed any more
		_ = c.Wait()
		return err
	}
	return c.Wait()
}

func (t *Tree) copy(names []string, in io.Writer, out *bufio.Reader) error {
	for i := 0; i < len(names); i++ {
		name := names[i]
		if t.laidOut[name] {
			continue
		}
		t.laidOut[name] = true
		if len(t.laidOut) > maxTreeFiles {
			return fmt.Errorf("--git: more than %d files to read in one commit", maxTreeFiles)
		}
		e := t.entries[name]
		data, err := t.blob(in, out, name, e)
		if err != nil {
			return err
		}
		if !e.symlink() {
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

// below returns the files of the commit at a path: the file itself, or all files of the folder.
func (t *Tree) below(name string) []string {
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

// blob requests one object from git cat-file and reads it.
func (t *Tree) blob(in io.Writer, out *bufio.Reader, name string, e entry) ([]byte, error) {
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

// at returns the path where a file of the commit is laid out.
func (t *Tree) at(name string) string { return filepath.Join(t.Root, filepath.FromSlash(name)) }

// Profiles returns the profiles of the commit, as paths below Root.
func (t *Tree) Profiles() []string {
	var out []string
	for name := range t.entries {
		if profilePath(name) && schema.IsProfile(t.at(name)) {
			out = append(out, name)
		}
	}
	return out
}

// Provide makes a path that a profile names exist below Temp: it lays out the commit's files of
// that path or, where the commit has none, links to the same path on this machine. It returns the
// path below Temp in the first case and the machine's path in the second.
func (t *Tree) Provide(file string) (string, error) {
	rel, err := filepath.Rel(t.Temp, file)
	if err != nil || !filepath.IsLocal(rel) {
		return file, nil // not below Temp: absolute, or in the working directory
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	local := filepath.Join(filepath.VolumeName(t.repo.Top)+string(filepath.Separator), rel)
	if name, err := filepath.Rel(t.Root, file); err == nil && filepath.IsLocal(name) {
		if names := t.below(filepath.ToSlash(name)); len(names) > 0 {
			return file, t.write(names)
		}
	}
	if _, err := os.Lstat(file); err == nil {
		return local, nil // linked for another profile
	}
	if _, err := os.Stat(local); err != nil {
		return local, nil // a model name of the hub
	}
	return local, link(local, file)
}
