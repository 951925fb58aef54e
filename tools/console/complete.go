package console

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// complete returns the words that can stand at the end of a line: commands, settings of /set, and
// files of /image, /load and /save. A folder ends with a slash.
func complete(line string) []string {
	name, rest, given := strings.Cut(line, " ")
	if !strings.HasPrefix(line, "/") {
		return nil
	}
	var out []string
	switch {
	case !given:
		out = commands
	case name == "/set":
		for _, s := range settings {
			out = append(out, s.name)
		}
	case slices.Contains([]string{"/image", "/load", "/save"}, name):
		rest = strings.TrimPrefix(rest, "--force ")
		dir, base := filepath.Split(rest)
		list, err := os.ReadDir(filepath.Clean(dir)) // "" is "."
		if err != nil {
			return nil
		}
		for _, e := range list {
			if strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(base, ".") {
				continue
			}
			word := dir + e.Name()
			if e.IsDir() {
				word += "/"
			}
			out = append(out, word)
		}
	}
	if given {
		line = rest
	}
	return slices.DeleteFunc(slices.Clone(out), func(w string) bool { return !strings.HasPrefix(w, line) })
}
