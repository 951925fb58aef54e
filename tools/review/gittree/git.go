// Package gittree reads the profiles of a commit: it runs git, resolves revision ranges and lays
// out the files of a commit in a folder. It must not plan or compare profiles; the command does
// that with tools/review. Its errors name the flag --git.
// Start reading at Open and Repository.LayOut.
package gittree

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

	"vapp.dev/schema"
)

// Repository runs git in a repository.
type Repository struct {
	// Top is the root folder of the working tree.
	Top string

	ctx context.Context
}

// command returns a git command with settings that make its output independent of the user's.
func (r *Repository) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(r.ctx, "git", append([]string{"-c", "core.quotepath=off", "-c", "core.fsmonitor=false"}, args...)...)
	c.Dir = r.Top
	c.Env = append(os.Environ(), "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0")
	return c
}

// run returns the output of git; its error has the first line of git's standard error.
func (r *Repository) run(args ...string) (string, error) {
	c := r.command(args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("--git needs the git command, which is not on the path")
	case r.ctx.Err() != nil:
		return "", r.ctx.Err()
	case err != nil:
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		if line == "" {
			line = err.Error()
		}
		return "", fmt.Errorf("git %s: %s", args[0], line)
	}
	return string(out), nil
}

// Open finds the repository that contains the working directory. ctx ends its git commands.
func Open(ctx context.Context) (*Repository, error) {
	r := &Repository{ctx: ctx}
	top, err := r.run("rev-parse", "--show-toplevel")
	if err != nil {
		if strings.Contains(err.Error(), "not a git repository") {
			return nil, errors.New("--git: the working directory is in no git repository")
		}
		return nil, err
	}
	r.Top = filepath.FromSlash(strings.TrimRight(top, "\r\n"))
	if r.Top == "" {
		return nil, errors.New("--git: this repository has no working tree")
	}
	return r, nil
}

// Range is a revision range: A..B, A...B, or A alone, which compares A with the working tree.
type Range struct {
	Old, New    string
	SinceFork   bool // A...B: the old side is the merge base of A and B
	WorkingTree bool // the new side is the working tree
}

// RangeError is a text that is no revision range.
type RangeError struct{ Text, Reason string }

func (e *RangeError) Error() string {
	return fmt.Sprintf("--git %q: %s; give A..B, A...B or A", e.Text, e.Reason)
}

// ParseRange parses the value of --git; its error is a *RangeError.
func ParseRange(text string) (Range, error) {
	r := Range{Old: text, WorkingTree: true}
	for _, dots := range []string{"...", ".."} {
		if a, b, ok := strings.Cut(text, dots); ok {
			r = Range{Old: a, New: b, SinceFork: dots == "..."}
			break
		}
	}
	bad := func(reason string) (Range, error) { return r, &RangeError{text, reason} }
	switch {
	case text == "":
		return bad("no commit")
	case strings.HasPrefix(r.Old, "-"), strings.HasPrefix(r.New, "-"):
		return bad("no commit begins with -")
	case strings.Contains(r.New, ".."), strings.HasPrefix(r.New, "."):
		return bad("two ranges")
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return bad("a space or control character")
	}
	if r.Old == "" {
		r.Old = "HEAD"
	}
	if r.New == "" && !r.WorkingTree {
		r.New = "HEAD"
	}
	return r, nil
}

// Resolve returns the full commit ids of the range: old and new, or old alone where the new side
// is the working tree.
func (r *Repository) Resolve(span Range) ([]string, error) {
	names := []string{span.Old, span.New}
	if span.WorkingTree {
		names = names[:1]
	}
	ids := make([]string, len(names))
	for i, name := range names {
		var err error
		if ids[i], err = r.commit(name); err != nil {
			return nil, err
		}
	}
	if span.SinceFork {
		base, err := r.run("merge-base", ids[0], ids[1])
		if err != nil {
			return nil, fmt.Errorf("--git: %s and %s have no commit in common; in a shallow clone fetch more (git fetch --unshallow)", span.Old, span.New)
		}
		ids[0] = strings.TrimSpace(base)
	}
	return ids, nil
}

// commit returns the full id of the commit that name resolves to.
func (r *Repository) commit(name string) (string, error) {
	id, err := r.run("rev-parse", "--verify", "--quiet", name+"^{commit}")
	if err != nil && r.ctx.Err() == nil {
		return "", fmt.Errorf("--git: %q is no commit of this repository; in a shallow clone fetch it first (git fetch --unshallow)", name)
	}
	return strings.TrimSpace(id), err
}

// Scope returns a filter of slash-separated paths below Top: those at or below the given paths,
// all where none are given.
func (r *Repository) Scope(paths []string) (func(string) bool, error) {
	var prefixes []string
	for _, p := range paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		if real, err := filepath.EvalSymlinks(abs); err == nil { // Top has no symlinks
			abs = real
		}
		rel, err := filepath.Rel(r.Top, abs)
		if err != nil || !filepath.IsLocal(rel) {
			return nil, fmt.Errorf("%s: not in the repository %s", p, r.Top)
		}
		prefixes = append(prefixes, filepath.ToSlash(rel))
	}
	return func(f string) bool {
		return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool {
			return p == "." || f == p || strings.HasPrefix(f, p+"/")
		})
	}, nil
}

// WorkingProfiles returns the profiles of the working tree that are tracked or not ignored, as
// paths below Top.
func (r *Repository) WorkingProfiles() ([]string, error) {
	out, err := r.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", "*.cue")
	if err != nil {
		return nil, err
	}
	var files []string
	for _, f := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		file := filepath.Join(r.Top, filepath.FromSlash(f))
		if _, err := os.Stat(file); err == nil && profilePath(f) && schema.IsProfile(file) {
			files = append(files, f)
		}
	}
	return files, nil
}

// profilePath reports whether a profile can have this path in a repository, by the rule of
// schema.Below.
func profilePath(f string) bool {
	dir, name := path.Split(f)
	for _, d := range strings.Split(strings.TrimSuffix(dir, "/"), "/") {
		if d == "cue.mod" || strings.HasPrefix(d, ".") {
			return false
		}
	}
	return strings.HasSuffix(name, ".cue")
}
