package appliance

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"vapp.dev/schema"
)

// sources are the files that the profile is read from.
type sources struct {
	files   []string
	folders []string // folders whose list of *.cue files matters
}

// of returns the sources of a reading: its files and folders and the chat template's file.
func (s sources) of(r *schema.Reading) sources {
	next := sources{slices.Clone(r.Files), slices.Clone(r.Folders)}
	if r.Err != nil { // the reading may not list all files
		next.files, next.folders = append(next.files, s.files...), append(next.folders, s.folders...)
	}
	if r.Profile != nil {
		if t := r.Profile.Parsers.ChatTemplate; t != "" && !isTemplate(t) {
			next.files = append(next.files, r.Profile.Path(t))
		}
	}
	for _, list := range []*[]string{&next.files, &next.folders} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return next
}

// hashes maps a file to the hash of its content, or to the error of reading it.
type hashes map[string]string

// hashes reads and hashes all files. failed is the first transient error.
func (s sources) hashes(read readFunc) (p hashes, failed error) {
	p = hashes{}
	for _, f := range s.files {
		text, err := read(f)
		p[f] = fmt.Sprintf("%x", sha256.Sum256(text))
		if err != nil {
			p[f] = "error: " + err.Error()
			if failed == nil && transient(err) {
				failed = err
			}
		}
	}
	for _, dir := range s.folders {
		entries, err := os.ReadDir(dir)
		list := fmt.Sprint(err)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".cue") {
				list += "\n" + e.Name()
			}
		}
		p[dir+"/*.cue"] = list
	}
	return p, failed
}

func (p hashes) equal(q hashes) bool { return maps.Equal(p, q) }

// transient reports whether reading may succeed at the next try: the error is a system
// error other than that the file does not exist.
func transient(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e) && !errors.Is(err, fs.ErrNotExist)
}

// readFunc reads a file of at most maxFile bytes.
type readFunc func(path string) ([]byte, error)

// maxFile is the maximum size of a file that a profile names, in bytes.
const maxFile = 1 << 20

func readSmall(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}
