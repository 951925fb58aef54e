package appliance

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWatcherSeesEdits changes a file in every way of editors and Kubernetes, and expects
// one wake-up for each change.
func TestWatcherSeesEdits(t *testing.T) {
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	follow := func(t *testing.T, w *watcher, file string) {
		t.Helper()
		_, err := w.follow([]string{file})
		must(t, err)
	}
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string) string // returns the file to watch
		edit func(t *testing.T, dir string)
	}{
		"in place": {
			func(t *testing.T, dir string) string { write(t, dir+"/p.cue", "a"); return dir + "/p.cue" },
			func(t *testing.T, dir string) { write(t, dir+"/p.cue", "b") },
		},
		"rename": {
			func(t *testing.T, dir string) string { write(t, dir+"/p.cue", "a"); return dir + "/p.cue" },
			func(t *testing.T, dir string) {
				write(t, dir+"/p.cue~", "b")
				must(t, os.Rename(dir+"/p.cue~", dir+"/p.cue"))
			},
		},
		"config map": {
			func(t *testing.T, dir string) string {
				must(t, os.Mkdir(dir+"/..1", 0o755))
				write(t, dir+"/..1/p.cue", "a")
				must(t, os.Symlink("..1", dir+"/..data"))
				must(t, os.Symlink("..data/p.cue", dir+"/p.cue"))
				return dir + "/p.cue"
			},
			func(t *testing.T, dir string) {
				must(t, os.Mkdir(dir+"/..2", 0o755))
				write(t, dir+"/..2/p.cue", "b")
				must(t, os.Symlink("..2", dir+"/..tmp"))
				must(t, os.Rename(dir+"/..tmp", dir+"/..data"))
				must(t, os.RemoveAll(dir+"/..1"))
			},
		},
		"link to a file elsewhere": {
			func(t *testing.T, dir string) string {
				must(t, os.Mkdir(dir+"/there", 0o755))
				must(t, os.Mkdir(dir+"/here", 0o755))
				write(t, dir+"/there/p.cue", "a")
				must(t, os.Symlink("../there/p.cue", dir+"/here/p.cue"))
				return dir + "/here/p.cue"
			},
			func(t *testing.T, dir string) { write(t, dir+"/there/p.cue", "b") },
		},
		"link swapped": {
			func(t *testing.T, dir string) string {
				must(t, os.Mkdir(dir+"/there", 0o755))
				write(t, dir+"/there/a.cue", "a")
				write(t, dir+"/there/b.cue", "b")
				must(t, os.Symlink("there/a.cue", dir+"/p.cue"))
				return dir + "/p.cue"
			},
			func(t *testing.T, dir string) {
				must(t, os.Symlink("there/b.cue", dir+"/tmp"))
				must(t, os.Rename(dir+"/tmp", dir+"/p.cue"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			must(t, err)
			file := c.make(t, dir)
			w, err := newWatcher()
			must(t, err)
			defer w.close()
			follow(t, w, file)
			ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
			defer stop()
			c.edit(t, dir)
			if !w.wait(ctx, 20*time.Millisecond) {
				t.Fatal("the edit was not seen")
			}
			follow(t, w, file)
			// The watched folders are now those of the new file, so that a second edit
			// of the path's target is seen too.
			to, err := filepath.EvalSymlinks(file)
			must(t, err)
			write(t, to, "c")
			if !w.wait(ctx, 20*time.Millisecond) {
				t.Fatal("the edit after the swap was not seen")
			}
		})
	}
}

// TestWatcherFollowsNewFolder checks that a folder which was removed or renamed, and created
// again, is watched again.
func TestWatcherFollowsNewFolder(t *testing.T) {
	for name, end := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(top, "keys")
			w, err := newWatcher()
			if err != nil {
				t.Fatal(err)
			}
			defer w.close()
			ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
			defer stop()
			do := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			do(os.Mkdir(dir, 0o755))
			_, err = w.follow([]string{dir + "/keys"})
			do(err)
			do(end(dir))
			if !w.wait(ctx, 10*time.Millisecond) {
				t.Fatal("the end of the folder was not seen")
			}
			do(os.Mkdir(dir, 0o755))
			if added, err := w.follow([]string{dir + "/keys"}); !added || err != nil {
				t.Fatalf("the new folder: added %v, %v", added, err)
			}
			do(os.WriteFile(dir+"/keys", []byte("a"), 0o644))
			if !w.wait(ctx, 10*time.Millisecond) {
				t.Fatal("the new file was not seen")
			}
		})
	}
}
