package vapp_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inBackquotes = regexp.MustCompile("`([^`]+)`")
	pathText     = regexp.MustCompile(`^[\w.\-/*{},]+$`)
	hasScheme    = regexp.MustCompile(`^[a-z]+:`)
	packageName  = regexp.MustCompile(`\.[A-Z]\w*$`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	// builtPath matches what commands fetch, build or write.
	builtPath = regexp.MustCompile(`^(models|bin|\.cache)/|/node_modules|\.lock\.json$`)
	// rootFile matches the files at the root that documents name without a folder.
	rootFile = regexp.MustCompile(`^([A-Z]\w+\.md|law_test\.go)$`)
)

// documents returns the Markdown files that people write.
func documents(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*.md", "examples/*/*.md", "*/*/design.md", "*/*/*/design.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, files...)
	}
	if len(out) < 30 {
		t.Fatalf("got %d documents, want at least 30: %v", len(out), out)
	}
	return out
}

// proseLines returns the lines of a document, those of fenced blocks empty.
func proseLines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, fenced := strings.Split(string(b), "\n"), false
	for i, line := range lines {
		mark := strings.HasPrefix(line, "```")
		if fenced || mark {
			lines[i] = ""
		}
		if mark {
			fenced = !fenced
		}
	}
	return lines
}

// hasAnchor reports whether a document has a heading with that anchor.
func hasAnchor(t *testing.T, file, anchor string) bool {
	for _, line := range proseLines(t, file) {
		if text := strings.TrimLeft(line, "#"); text != line && strings.HasPrefix(text, " ") {
			text = notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), "")
			if strings.ReplaceAll(text, " ", "-") == anchor {
				return true
			}
		}
	}
	return false
}

// alternatives returns the paths that a path with {a,b} stands for.
func alternatives(path string) []string {
	before, rest, found := strings.Cut(path, "{")
	inside, after, closed := strings.Cut(rest, "}")
	if !found || !closed {
		return []string{path}
	}
	var out []string
	for _, choice := range strings.Split(inside, ",") {
		out = append(out, alternatives(before+choice+after)...)
	}
	return out
}

// exists reports whether a path or a pattern, with or without its extension, has a file.
func exists(path string) bool {
	for _, pattern := range []string{path, path + ".*"} {
		if files, err := filepath.Glob(pattern); err == nil && len(files) > 0 {
			return true
		}
	}
	return false
}

// TestDocLinks checks that every relative link of a document leads to a file, and to a heading of
// it, and that every path in backquotes exists.
func TestDocLinks(t *testing.T) {
	for _, file := range documents(t) {
		for i, line := range proseLines(t, file) {
			for _, m := range markdownLink.FindAllStringSubmatch(line, -1) {
				path, anchor, _ := strings.Cut(m[1], "#")
				if hasScheme.MatchString(m[1]) {
					continue
				}
				to := file
				if path != "" {
					to = filepath.Join(filepath.Dir(file), path)
				}
				if _, err := os.Stat(to); err != nil {
					t.Errorf("%s:%d: link to %s: %v", file, i+1, m[1], err)
				} else if anchor != "" && filepath.Ext(to) == ".md" && !hasAnchor(t, to, anchor) {
					t.Errorf("%s:%d: link to %s: no heading of %s has this anchor", file, i+1, m[1], to)
				}
			}
			for _, m := range inBackquotes.FindAllStringSubmatch(line, -1) {
				text := packageName.ReplaceAllString(m[1], "")
				if !pathText.MatchString(m[1]) || builtPath.MatchString(m[1]) {
					continue
				}
				first, _, slash := strings.Cut(text, "/")
				if st, err := os.Stat(first); !rootFile.MatchString(text) && (!slash || err != nil || !st.IsDir()) {
					continue // not a path of the tree
				}
				for _, path := range alternatives(text) {
					if !exists(path) && !exists(filepath.Join(filepath.Dir(file), path)) {
						t.Errorf("%s:%d: %s does not exist", file, i+1, path)
					}
				}
			}
		}
	}
}
