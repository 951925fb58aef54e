package githead

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const id = "0123456789abcdef0123456789abcdef01234567"

// tree writes files below a new folder and returns it.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"branch":         {map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": id + "\n"}, id},
		"detached":       {map[string]string{".git/HEAD": id + "\n"}, id},
		"packed":         {map[string]string{".git/HEAD": "ref: refs/heads/a/b\n", ".git/packed-refs": "# pack-refs\n" + strings.Repeat("f", 40) + " refs/heads/a\n" + id + " refs/heads/a/b\n^" + id + "\n"}, id},
		"linked":         {map[string]string{".git": "gitdir: main/worktrees/x\n", "main/worktrees/x/HEAD": "ref: refs/heads/x\n", "main/worktrees/x/commondir": "../..\n", "main/refs/heads/x": id}, id},
		"symbolic":       {map[string]string{".git/HEAD": "ref: refs/heads/a", ".git/refs/heads/a": "ref: refs/heads/b", ".git/refs/heads/b": id}, id},
		"circle":         {map[string]string{".git/HEAD": "ref: refs/heads/a", ".git/refs/heads/a": "ref: refs/heads/a"}, ""},
		"no commit":      {map[string]string{".git/HEAD": "ref: refs/heads/main\n"}, ""},
		"reftable":       {map[string]string{".git/HEAD": "ref: refs/heads/.invalid\n", ".git/reftable/tables.list": "x"}, ""},
		"outside":        {map[string]string{".git/HEAD": "ref: refs/../../secret\n", "secret": id}, ""},
		"too long":       {map[string]string{".git/HEAD": id + strings.Repeat("\n", maxSmall)}, ""},
		"no work tree":   {map[string]string{"HEAD": id}, ""},
		"not a git file": {map[string]string{".git": "hello"}, ""},
	} {
		dir := tree(t, c.files)
		if got := Of(filepath.Join(dir, "profiles", "p.cue")); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// FuzzOf checks that no content of git's files makes Of panic or return something else than a commit.
func FuzzOf(f *testing.F) {
	f.Add("ref: refs/heads/main", id, id+" refs/heads/main")
	f.Add(id, "", "")
	f.Fuzz(func(t *testing.T, head, ref, packed string) {
		dir := tree(t, map[string]string{".git/HEAD": head, ".git/refs/heads/main": ref, ".git/packed-refs": packed})
		if got := Of(filepath.Join(dir, "p.cue")); got != "" && !commit.MatchString(got) {
			t.Errorf("%q", got)
		}
	})
}
