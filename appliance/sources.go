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

// sources are the files whose content decides what the profile says.
type sources struct {
	files   []string
	folders []string // in which a *.cue file more or less counts
}

// of returns s with what a reading and the profile's template add.
func (s sources) of(r *schema.Reading) sources {
	next := sources{slices.Clone(r.Files), slices.Clone(r.Folders)}
	if r.Err != nil { // it may consist of more than could be read
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

// prints maps a file to the hash of its content, or to why it has none.
type prints map[string]string

// prints reads all files. The error is the first that may be gone at the next try.
func (s sources) prints(read readFunc) (p prints, failed error) {
	p = prints{}
	for _, f := range s.files {
		text, err := read(f)
		p[f] = fmt.Sprintf("%x", sha256.Sum256(text))
		if err != nil {
			p[f] = "error: " + err.Error()
			if failed == nil && passing(err) {
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

func (p prints) equal(q prints) bool { return maps.Equal(p, q) }

// passing reports whether the system failed to read a file that may be there.
func passing(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e) && !errors.Is(err, fs.ErrNotExist)
}

// readFunc reads a file of at most maxFile bytes.
type readFunc func(path string) ([]byte, error)

// maxFile bounds a file that a profile names.
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
