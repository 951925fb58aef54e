package hub

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vapp.dev/appliance/hub/hubtest"
)

// python is an interpreter with huggingface_hub. TestLayout then records what that library writes.
var python = flag.String("python", "", "interpreter with huggingface_hub, to write testdata/layout.txt")

// recorder downloads the test hub's model with huggingface_hub.
const recorder = `
from huggingface_hub import hf_hub_download, __version__
import sys
for f in sys.argv[1:]: hf_hub_download("acme/tiny", f)
print("huggingface_hub " + __version__)
`

// layout lists a cache: folders, links with their targets, files with git's hash of their content.
func layout(t *testing.T, cache string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(cache, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == cache {
			return err
		}
		rel, err := filepath.Rel(cache, path)
		if err != nil {
			return err
		}
		line := filepath.ToSlash(rel)
		switch {
		case d.IsDir():
			line += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + filepath.ToSlash(to)
		default:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if line != "CACHEDIR.TAG" { // its text is the program's own
				line += fmt.Sprintf(" %d %s", len(b), hubtest.Blob(b))
			}
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// TestLayout checks that a pull writes the same cache as huggingface_hub, and that a cache written
// by that library is found.
func TestLayout(t *testing.T) {
	h, _, c := start(t)
	const record = "testdata/layout.txt"
	if *python != "" {
		home := t.TempDir()
		cmd := exec.Command(*python, append([]string{"-c", recorder}, served...)...)
		cmd.Env = append(os.Environ(), "HF_HOME="+home, "HF_HUB_CACHE="+home, "HF_ENDPOINT="+h.URL, "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_PROGRESS_BARS=1")
		cmd.Stderr = os.Stderr
		version, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		text := "# " + string(version) + strings.Join(layout(t, home), "\n") + "\n"
		if err := os.WriteFile(record, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	if _, err := pull(c, named(t, model), Want{}); err != nil {
		t.Fatal(err)
	}
	if got := layout(t, c.Cache); !slices.Equal(got, want) {
		t.Errorf("a pull leaves\n%s\nhuggingface_hub\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	theirs := client(t, h, t.TempDir())
	rebuild(t, theirs.Cache, want)
	theirs.Offline = true
	got, ok := theirs.Find(named(t, model), Want{})
	if !ok {
		t.Fatal("what huggingface_hub fetched is not found")
	}
	holds(t, got.Path, tiny(), served...)
}

// rebuild creates the cache that a record lists.
func rebuild(t *testing.T, cache string, record []string) {
	t.Helper()
	contents := map[string][]byte{hubtest.Blob([]byte(hubtest.Commit(0))): []byte(hubtest.Commit(0))}
	for _, b := range tiny() {
		contents[hubtest.Blob(b)] = b
	}
	for _, line := range record {
		path, to, link := strings.Cut(line, " -> ")
		at := filepath.Join(cache, filepath.FromSlash(strings.Fields(path)[0]))
		var err error
		switch {
		case strings.HasSuffix(path, "/"):
			err = os.MkdirAll(at, 0o755)
		case link:
			err = os.Symlink(filepath.FromSlash(to), at)
		case len(strings.Fields(path)) == 3:
			err = os.WriteFile(at, contents[strings.Fields(path)[2]], 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
