package fetch

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// file returns the item of a file: URL below AllowedPath. The folder is opened once, and every
// step of the path is taken inside of it: symbolic links that lead out are refused, also where
// the folder changes at the same time.
func (f *Fetcher) file(u *url.URL, reserve Reserve) (Item, error) {
	if f.root == nil {
		return Item{}, refused(nil, "Cannot load local files without `--allowed-local-media-path`: set multimodal.allowedPath in the profile.")
	}
	if u.Opaque != "" || u.User != nil || u.Host != "" && u.Host != "localhost" {
		return Item{}, refused(nil, "A file URL has no host and an absolute path: file:///folder/image.png.")
	}
	name, ok := f.below(u.Path)
	if !ok {
		return Item{}, refused(nil, "The file path must be a subpath of `--allowed-local-media-path` (multimodal.allowedPath).")
	}
	info, err := f.root.Stat(name)
	if err != nil {
		return Item{}, fileError(err)
	}
	if !info.Mode().IsRegular() { // a pipe would wait, a device never end
		return Item{}, refused(nil, "The file URL names no regular file.")
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return Item{}, fileError(err)
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() {
		return Item{}, refused(err, "The file URL names no regular file.")
	}
	if f.over(info.Size()) {
		return Item{}, f.tooLarge(info.Size())
	}
	data, err := f.read(file, reserve)
	var source *readError
	if errors.As(err, &source) {
		return Item{}, failed(source.error, "The file could not be read to its end.")
	}
	return Item{Data: data}, err
}

// below returns a path relative to AllowedPath, which a URL may also spell without symbolic
// links.
func (f *Fetcher) below(path string) (string, bool) {
	if strings.ContainsRune(path, 0) {
		return "", false
	}
	path = filepath.FromSlash(path)
	if !filepath.IsAbs(path) {
		return "", false
	}
	for _, p := range f.prefixes {
		if rel, err := filepath.Rel(p, path); err == nil && rel != "." && filepath.IsLocal(rel) {
			return rel, true
		}
	}
	return "", false
}

// fileError returns the error of a path that leads to no file of the folder.
func fileError(err error) *Error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refused(err, "The file URL names no file.")
	case errors.Is(err, fs.ErrPermission):
		return refused(err, "The file of the URL may not be read.")
	}
	return refused(err, "The file path must be a subpath of `--allowed-local-media-path` (multimodal.allowedPath), also behind its symbolic links.")
}
