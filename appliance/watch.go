package appliance

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watcher tells when files may have changed. It watches folders, not files:
// editors replace a file by renaming another over it, and Kubernetes swaps the
// symlink of a folder above it. For a path that leads through symlinks the
// folder of every link on the way is watched.
type watcher struct {
	fs *fsnotify.Watcher
}

func newWatcher() (*watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &watcher{fs: w}, nil
}

// follow makes the folders of these files the ones that are watched. A folder
// that cannot be watched is an error, but the others are. It reports whether a
// folder is new: what changed there before is known only to who reads it again.
func (w *watcher) follow(files []string) (added bool, err error) {
	want := map[string]bool{}
	for _, f := range files {
		for _, dir := range foldersOf(f) {
			want[dir] = true
		}
	}
	var errs []error
	watched := map[string]bool{} // a folder that was removed or renamed is not, even if there is another now
	for _, dir := range w.fs.WatchList() {
		watched[dir] = true
	}
	for dir := range want {
		if watched[dir] {
			continue
		}
		if err := w.fs.Add(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		added = true
	}
	for dir := range watched {
		if !want[dir] {
			// The folder may be gone already, and its watch with it.
			_ = w.fs.Remove(dir)
		}
	}
	return added, errors.Join(errs...)
}

// foldersOf lists the folders to watch for a file: its own, those of the links
// among its path's elements, and those that they lead to.
func foldersOf(file string) []string {
	const deepest = 40 // links, as the kernel's limit
	out := []string{filepath.Dir(file)}
	for range deepest {
		link, rest := firstLink(file)
		if link == "" {
			break
		}
		to, err := readLink(link)
		if err != nil {
			break
		}
		out = append(out, filepath.Dir(link))
		file = filepath.Join(to, rest)
		out = append(out, filepath.Dir(file))
	}
	return out
}

// longest is how many debounces a burst that does not rest may last.
const longest = 5

// wait returns after the next burst of events has rested for debounce, or has
// lasted for long. It returns false when ctx ends.
func (w *watcher) wait(ctx context.Context, debounce time.Duration) bool {
	var rest, end <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case _, ok := <-w.fs.Events:
			if !ok {
				return false
			}
			rest = time.After(debounce)
			if end == nil {
				end = time.After(longest * debounce)
			}
		case _, ok := <-w.fs.Errors:
			if !ok {
				return false
			}
			// An overflow of the kernel's queue loses events: look at the files.
			rest = time.After(debounce)
		case <-rest:
			return true
		case <-end:
			return true
		}
	}
}

func (w *watcher) close() error { return w.fs.Close() }
