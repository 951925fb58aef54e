package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"vapp.dev/appliance/review"
	"vapp.dev/schema"
)

// repository runs git in a repository.
type repository struct {
	ctx context.Context
	top string // the folder with all files
}

// command is git with the settings that make its output the same everywhere.
func (r *repository) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(r.ctx, "git", append([]string{"-c", "core.quotepath=off", "-c", "core.fsmonitor=false"}, args...)...)
	c.Dir = r.top
	c.Env = append(os.Environ(), "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0")
	return c
}

// run is what git prints; its error is the first line of what git complains of.
func (r *repository) run(args ...string) (string, error) {
	c := r.command(args...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("--git needs the git command, which is not on the path")
	case r.ctx.Err() != nil:
		return "", r.ctx.Err()
	case err != nil:
		line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		if line == "" {
			line = err.Error()
		}
		return "", fmt.Errorf("git %s: %s", args[0], line)
	}
	return string(out), nil
}

// openRepository finds the repository around the working directory.
func openRepository(ctx context.Context) (*repository, error) {
	r := &repository{ctx: ctx}
	top, err := r.run("rev-parse", "--show-toplevel")
	if err != nil {
		if strings.Contains(err.Error(), "not a git repository") {
			return nil, errors.New("--git: the working directory is in no git repository")
		}
		return nil, err
	}
	r.top = filepath.FromSlash(strings.TrimRight(top, "\r\n"))
	if r.top == "" {
		return nil, errors.New("--git: this repository has no working tree")
	}
	return r, nil
}

// revisionRange is what --git takes. The working tree is the new side of one
// that names but one commit.
type revisionRange struct {
	old, new    string
	sinceFork   bool // A...B
	workingTree bool
}

func parseRange(text string) (revisionRange, error) {
	r := revisionRange{old: text, workingTree: true}
	for _, dots := range []string{"...", ".."} {
		if a, b, ok := strings.Cut(text, dots); ok {
			r = revisionRange{old: a, new: b, sinceFork: dots == "..."}
			break
		}
	}
	bad := func(why string) (revisionRange, error) {
		return r, &usageError{err: fmt.Errorf("--git %q: %s; give A..B, A...B or A", text, why)}
	}
	switch {
	case text == "":
		return bad("no commit")
	case strings.HasPrefix(r.old, "-"), strings.HasPrefix(r.new, "-"):
		return bad("no commit begins with -")
	case strings.Contains(r.new, ".."), strings.HasPrefix(r.new, "."):
		return bad("two ranges")
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return bad("a space or control character")
	}
	if r.old == "" {
		r.old = "HEAD"
	}
	if r.new == "" && !r.workingTree {
		r.new = "HEAD"
	}
	return r, nil
}

// commit is the full id of what a name stands for.
func (r *repository) commit(name string) (string, error) {
	id, err := r.run("rev-parse", "--verify", "--quiet", name+"^{commit}")
	if err != nil && r.ctx.Err() == nil {
		return "", fmt.Errorf("--git: %q is no commit of this repository; in a shallow clone fetch it first (git fetch --unshallow)", name)
	}
	return strings.TrimSpace(id), err
}

// revisions compares the profiles of two commits, or of one and the working
// tree.
func (d *differ) revisions(ctx context.Context, text string, scope []string) (*review.Review, error) {
	span, err := parseRange(text)
	if err != nil {
		return nil, err
	}
	repo, err := openRepository(ctx)
	if err != nil {
		return nil, err
	}
	within, err := repo.scope(scope)
	if err != nil {
		return nil, err
	}
	ids := make([]string, 2)
	names := []string{span.old, span.new}
	if span.workingTree {
		ids, names[1] = ids[:1], "the working tree"
	}
	for i := range ids {
		if ids[i], err = repo.commit(names[i]); err != nil {
			return nil, err
		}
	}
	if span.sinceFork {
		base, err := repo.run("merge-base", ids[0], ids[1])
		if err != nil {
			return nil, fmt.Errorf("--git: %s and %s have no commit in common; in a shallow clone fetch more (git fetch --unshallow)", span.old, span.new)
		}
		ids[0] = strings.TrimSpace(base)
	}
	temp, err := os.MkdirTemp("", "vapp-diff-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	return d.trees(repo, temp, ids, names, within)
}

// trees lays out the commits below temp and compares what is in scope.
func (d *differ) trees(repo *repository, temp string, ids, names []string, within func(string) bool) (*review.Review, error) {
	sides := [2]side{{name: names[0]}, {name: names[1]}}
	pairs := map[string]*pair{}
	for i, id := range ids {
		t, err := repo.layOut(id, filepath.Join(temp, fmt.Sprint(i)))
		if err != nil {
			return nil, err
		}
		sides[i].tree = t
		for _, f := range t.profiles() {
			if within(f) {
				add(pairs, f, i, filepath.Join(t.root, filepath.FromSlash(f)))
			}
		}
	}
	if len(ids) == 1 {
		files, err := repo.workingProfiles()
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if within(f) {
				add(pairs, f, 1, filepath.Join(repo.top, filepath.FromSlash(f)))
			}
		}
	}
	return d.compare(repo.ctx, sides, ordered(pairs))
}

// scope is the filter that paths stand for; none: everything.
func (r *repository) scope(paths []string) (func(string) bool, error) {
	var prefixes []string
	for _, p := range paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		if real, err := filepath.EvalSymlinks(abs); err == nil { // the top is given without links
			abs = real
		}
		rel, err := filepath.Rel(r.top, abs)
		if err != nil || !filepath.IsLocal(rel) {
			return nil, fmt.Errorf("%s: not in the repository %s", p, r.top)
		}
		prefixes = append(prefixes, filepath.ToSlash(rel))
	}
	return func(f string) bool {
		return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool {
			return p == "." || f == p || strings.HasPrefix(f, p+"/")
		})
	}, nil
}

// workingProfiles are the profiles that git knows or would add.
func (r *repository) workingProfiles() ([]string, error) {
	out, err := r.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", "*.cue")
	if err != nil {
		return nil, err
	}
	var files []string
	for _, f := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		file := filepath.Join(r.top, filepath.FromSlash(f))
		if _, err := os.Stat(file); err == nil && profilePath(f) && schema.IsProfile(file) {
			files = append(files, f)
		}
	}
	return files, nil
}

// profilePath says whether a profile can be at that path of a repository: the
// rule of schema.Below.
func profilePath(f string) bool {
	dir, name := path.Split(f)
	for _, d := range strings.Split(strings.TrimSuffix(dir, "/"), "/") {
		if d == "cue.mod" || strings.HasPrefix(d, ".") {
			return false
		}
	}
	return strings.HasSuffix(name, ".cue")
}
