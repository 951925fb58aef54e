package hub

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Name identifies a model of the hub.
type Name struct {
	Repo     string // org/name
	Revision string // branch, tag or commit; "": main
	File     string // GGUF file of the repository; "": choose
}

// repoPart matches one half of a repository's name, by the hub's rules.
var repoPart = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)

// ParseName parses org/name and org/name:file.gguf, either with @revision. ok is false where the
// text is no name of the hub, such as a path.
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

// At returns n with this revision; "" keeps n's own.
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

// String returns the form that ParseName parses.
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

// revision returns the revision to request.
func (n Name) revision() string {
	if n.Revision == "" {
		return "main"
	}
	return n.Revision
}

func isGGUF(file string) bool { return strings.HasSuffix(strings.ToLower(file), ".gguf") }

// commitPattern matches a full commit id.
var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// blobPattern matches the id of a blob: git's SHA-1, or SHA-256.
var blobPattern = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

// validRevision reports whether r is valid as a git reference and as a file name.
func validRevision(r string) bool {
	return localName(r) && !strings.ContainsAny(r, " ~^:?*[@") && !strings.HasSuffix(r, ".lock")
}

// localName reports whether a slash-separated name stays below its folder on every system: no
// empty, "." or ".." segments, no drive, no backslash, no control characters, no segment longer
// than a file name may be.
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
