package appliance

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watcher reports when files may have changed. It watches folders, not files: editors
// replace a file by renaming another over it, and Kubernetes swaps the symlink of a
// folder above it. For a path with symlinks it watches the folder of every link.
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

// follow watches exactly the folders of these files. For folders that cannot be watched
// it returns an error and watches the others. It reports whether it added a folder: the
// caller then reads the files again, since earlier changes caused no events.
func (w *watcher) follow(files []string) (added bool, err error) {
	want := map[string]bool{}
	for _, f := range files {
		for _, dir := range foldersOf(f) {
			want[dir] = true
		}
	}
	var errs []error
	watched := map[string]bool{} // without removed or renamed folders, even if one with the same name exists
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
			// An error means that the folder and its watch no longer exist.
			_ = w.fs.Remove(dir)
		}
	}
	return added, errors.Join(errs...)
}

// foldersOf returns the folders to watch for a file: its own, those of the symlinks on
// its path, and those of the links' targets.
func foldersOf(file string) []string {
	const deepest = 40 // links, the kernel's limit
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

// longest is the maximum length of a burst of events, in debounce times.
const longest = 5

// wait returns true after a burst of events, when no event came for the debounce time or
// the burst lasted for longest debounce times. It returns false when ctx is cancelled.
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
			// The kernel's queue overflowed and lost events: the files may have changed.
			rest = time.After(debounce)
		case <-rest:
			return true
		case <-end:
			return true
		}
	}
}

func (w *watcher) close() error { return w.fs.Close() }
