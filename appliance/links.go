package appliance

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// firstLink returns the first symlink on an absolute path, and the rest of the path
// after it; "" for none.
func firstLink(path string) (link, rest string) {
	at := filepath.VolumeName(path) + string(filepath.Separator)
	parts := strings.Split(strings.TrimPrefix(path, at), string(filepath.Separator))
	for i, p := range parts {
		at = filepath.Join(at, p)
		st, err := os.Lstat(at)
		if err != nil {
			return "", ""
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			return at, filepath.Join(parts[i+1:]...)
		}
	}
	return "", ""
}

// readLink returns the absolute target of a symlink.
func readLink(link string) (string, error) {
	to, err := os.Readlink(link)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(link), to)
	}
	return to, nil
}
