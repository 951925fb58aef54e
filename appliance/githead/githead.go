// Package githead finds the commit that is checked out in the work tree of a file. It reads the files of
// git and does not run git, so that a server needs no git on its machine. It does not know whether the file
// has changes since that commit. Start reading at Of.
package githead

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Limits of what is read, in bytes, and of the folders that are looked at.
const (
	maxSmall  = 4 << 10
	maxPacked = 16 << 20
	maxDepth  = 64
)

var (
	commit = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	branch = regexp.MustCompile(`^refs/[^\x00-\x20\x7f~^:?*\[\\]+$`)
)

// Of returns the commit as 40 or 64 hexadecimal digits; "" if the file is in no work tree, if there is
// no commit, or if git keeps its references in another format than files (reftable).
func Of(file string) string {
	git := folder(filepath.Dir(file))
	if git == "" {
		return ""
	}
	head := small(filepath.Join(git, "HEAD"))
	name, symbolic := strings.CutPrefix(head, "ref: ")
	if !symbolic {
		return only(head)
	}
	common := git // of a linked work tree the folder that all of them share
	if at := small(filepath.Join(git, "commondir")); at != "" {
		common = absolute(git, at)
	}
	for range 5 { // a reference to a reference
		if !branch.MatchString(name) || !filepath.IsLocal(name) {
			return ""
		}
		text := small(filepath.Join(git, name))
		if text == "" {
			text = small(filepath.Join(common, name))
		}
		if text == "" {
			return packed(read(filepath.Join(common, "packed-refs"), maxPacked), name)
		}
		if name, symbolic = strings.CutPrefix(text, "ref: "); !symbolic {
			return only(text)
		}
	}
	return ""
}

// folder returns the .git folder of the work tree that contains dir.
func folder(dir string) string {
	for range maxDepth {
		git := filepath.Join(dir, ".git")
		if st, err := os.Stat(git); err == nil {
			if st.IsDir() {
				return git
			}
			if to, ok := strings.CutPrefix(small(git), "gitdir: "); ok { // a linked work tree or a submodule
				return absolute(dir, to)
			}
			return ""
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
	return ""
}

// packed returns the commit of a reference in the text of packed-refs.
func packed(text []byte, name string) string {
	for line := range bytes.Lines(text) {
		id, ref, ok := strings.Cut(strings.TrimSpace(string(line)), " ")
		if ok && ref == name {
			return only(id)
		}
	}
	return ""
}

func only(id string) string {
	if commit.MatchString(id) {
		return id
	}
	return ""
}

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// small returns the trimmed content of a small file, "" if it cannot be read.
func small(path string) string { return strings.TrimSpace(string(read(path, maxSmall))) }

// read returns the content of a regular file of at most most bytes; nil for every other one.
func read(path string, most int64) []byte {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() || st.Size() > most {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil
	}
	return b
}
