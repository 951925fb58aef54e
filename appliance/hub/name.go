package hub

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Name is a model of the hub.
type Name struct {
	Repo     string // org/name
	Revision string // branch, tag or commit; "": main
	File     string // the GGUF file of the repository; "": choose
}

// part of a repository's name, as the hub allows it.
var repoPart = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)

// ParseName reads org/name, org/name:file.gguf, and either with @revision. ok is
// false where the text is no name of the hub but, say, a path.
func ParseName(text string) (n Name, ok bool) {
	if len(text) > 1024 {
		return n, false
	}
	rest, revision, pinned := strings.Cut(text, "@")
	repo, file, named := strings.Cut(rest, ":")
	org, name, two := strings.Cut(repo, "/")
	for _, part := range []string{org, name} {
		if !repoPart.MatchString(part) || strings.Contains(part, "--") || strings.Contains(part, "..") ||
			strings.HasSuffix(part, ".") || strings.HasSuffix(part, "-") {
			return n, false
		}
	}
	switch lower := strings.ToLower(name); {
	case !two, strings.HasSuffix(lower, ".git"), strings.HasSuffix(lower, ".gguf"), strings.HasSuffix(lower, ".safetensors"):
		return n, false
	case named && (!localName(file) || !isGGUF(file)):
		return n, false
	case pinned && !validRevision(revision):
		return n, false
	}
	return Name{Repo: repo, Revision: revision, File: file}, true
}

// At is the name at a revision; "" leaves it as it is.
func (n Name) At(revision string) (Name, error) {
	switch {
	case revision == "":
		return n, nil
	case !validRevision(revision):
		return n, fmt.Errorf("%q is no branch, tag or commit", revision)
	}
	n.Revision = revision
	return n, nil
}

// String is what ParseName reads.
func (n Name) String() string {
	s := n.Repo
	if n.File != "" {
		s += ":" + n.File
	}
	if n.Revision != "" {
		s += "@" + n.Revision
	}
	return s
}

// revision is what to ask the hub for.
func (n Name) revision() string {
	if n.Revision == "" {
		return "main"
	}
	return n.Revision
}

func isGGUF(file string) bool { return strings.HasSuffix(strings.ToLower(file), ".gguf") }

// commitPattern is a full commit.
var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// blobPattern is the name of a blob: git's SHA-1, or SHA-256.
var blobPattern = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

// validRevision takes what git takes as a name and a file may be called.
func validRevision(r string) bool {
	return localName(r) && !strings.ContainsAny(r, " ~^:?*[@") && !strings.HasSuffix(r, ".lock")
}

// localName reports that a name with slashes leads below where it is put,
// whatever the system: no empty, "." or ".." segments, no drive, no backslash,
// no control characters, nothing longer than a file's name may be.
func localName(name string) bool {
	if name == "" || len(name) > 1024 || !utf8.ValidString(name) || strings.ContainsRune(name, '\\') {
		return false
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	for _, seg := range strings.Split(name, "/") {
		if seg == "" || seg == "." || seg == ".." || len(seg) > 255 {
			return false
		}
	}
	return filepath.IsLocal(filepath.FromSlash(name))
}
