package vapp_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tracked returns the regular files that git tracks, relative to the root.
func tracked(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("not run: there is no .git folder, so the tracked files are not known")
	}
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	return slices.DeleteFunc(files, func(f string) bool {
		st, err := os.Lstat(f)
		return err != nil || !st.Mode().IsRegular() // removed in the working tree
	})
}

// pattern is a text that no tracked file may contain.
type pattern struct {
	what string
	re   *regexp.Regexp
}

// foreign are texts that tie the tree to a machine or to a registry. They are concatenated so that
// this file does not contain them.
var foreign = []pattern{
	{"a path of one machine", regexp.MustCompile(`(?:^|[^\w./-])/(?:` + `wor` + `k|roo` + `t|opt/whe` + `els)(?:/|\b)`)},
	{"a path of one machine", regexp.MustCompile(`(?:^|[^\w.-])/(?:ho` + `me|Use` + `rs)/\w`)},
	{"a host of a package registry", regexp.MustCompile(strings.Join([]string{
		`\bpypi\.` + `org`, `python` + `hosted\.org`, `\bcrates\.` + `io\b`, `(?:proxy|sum)\.` + `golang\.org`,
		`registry\.` + `npmjs`, `conda\.` + `anaconda\.org`,
	}, "|"))},
}

// TestNothingForeign checks that no file has machine paths or registry hosts. Cargo.lock is exempt:
// Cargo writes its registry into it.
func TestNothingForeign(t *testing.T) {
	for _, f := range tracked(t) {
		data := read(t, f)
		if filepath.Base(f) == "Cargo.lock" || bytes.IndexByte(data[:min(len(data), 8192)], 0) >= 0 {
			continue
		}
		for n, line := range bytes.Split(data, []byte{'\n'}) {
			for _, p := range foreign {
				if m := p.re.Find(line); m != nil {
					t.Errorf("%s:%d: %s: %q", f, n+1, p.what, m)
				}
			}
		}
	}
}

// TestForeignPatterns checks texts that the patterns must and must not match.
func TestForeignPatterns(t *testing.T) {
	for text, want := range map[string]bool{
		`see /wor` + `k/main`: true, `"/roo` + `t/x"`: true, `/ho` + `me/jo/x`: true, `https://pypi.` + `org/simple`: true,
		`a crates.` + `io crate`: true, `cd "$HOME/work/x"`: false, `api/work/steps`: false, `./root/x`: false,
		`/v1/models`: false, `golang.org/x/sys`: false,
	} {
		found := slices.ContainsFunc(foreign, func(p pattern) bool { return p.re.MatchString(text) })
		if found != want {
			t.Errorf("%s: found %v, want %v", text, found, want)
		}
	}
}

// TestSmallFiles checks that no tracked file is large: models and data sets are not committed.
func TestSmallFiles(t *testing.T) {
	const most = 5 << 20
	for _, f := range tracked(t) {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() > most {
			t.Errorf("%s: %d bytes, at most %d", f, st.Size(), most)
		}
	}
}

// TestDependenciesAreListed compares docs/dependencies.md with the modules that the tree imports
// and the crates of the tokenizer library.
func TestDependenciesAreListed(t *testing.T) {
	doc := string(read(t, "docs/dependencies.md"))
	tools := string(read(t, "packaging/tools/go.mod")) + string(read(t, "tests/kubernetes/go.mod"))
	versions := map[string]string{} // of every module in go.mod
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:require )?(\S+\.\S+) (v\S+)`).FindAllStringSubmatch(string(read(t, "go.mod")), -1) {
		versions[m[1]] = m[2]
	}
	used := map[string]string{}
	_, files := sources(t)
	for _, s := range files {
		for _, p := range imports(s.file) {
			for name, version := range versions {
				if within(p, name) {
					used[name] = version
				}
			}
		}
	}
	crates := regexp.MustCompile(`(?m)^([\w-]+) = (?:"|\{ version = ")([^"]+)"`)
	_, deps, _ := strings.Cut(string(read(t, "engine/tokenizer/native/Cargo.toml")), "[dependencies]")
	deps, _, _ = strings.Cut(deps, "\n[")
	for _, m := range crates.FindAllStringSubmatch(deps, -1) {
		used[m[1]] = m[2]
	}
	if used["cuelang.org/go"] == "" || used["minijinja"] == "" {
		t.Fatalf("go.mod or Cargo.toml was not parsed: %v", used)
	}
	for name, version := range used {
		if row := "| `" + name + "` | " + version + " |"; !strings.Contains(doc, row) {
			t.Errorf("docs/dependencies.md lacks the row %s", row)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^` ]+\\.[^` ]+/[^` ]*)` \\|").FindAllStringSubmatch(doc, -1) {
		if versions[m[1]] == "" && !strings.Contains(tools, m[0][3:len(m[0])-3]+" v") {
			t.Errorf("docs/dependencies.md lists %s, which no go.mod names", m[1])
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
