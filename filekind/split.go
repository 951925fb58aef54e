package filekind

import (
	"fmt"
	"strconv"
	"strings"
)

// SplitGGUF parses the name of one file of a GGUF model that is split into several:
// stem-00001-of-00003.gguf, as llama.cpp's gguf-split names them. ok is false for other names. The
// stem may have folders.
func SplitGGUF(name string) (stem string, index, count int, ok bool) {
	const ending, number = ".gguf", 5
	base := len(name) - len(ending)
	if base < 0 || !strings.EqualFold(name[base:], ending) {
		return "", 0, 0, false
	}
	rest, last, found := cutLast(name[:base], "-of-")
	stem, first, dashed := cutLast(rest, "-")
	if !found || !dashed || stem == "" || len(first) != number || len(last) != number {
		return "", 0, 0, false
	}
	i, errI := strconv.ParseUint(first, 10, 32)
	n, errN := strconv.ParseUint(last, 10, 32)
	if errI != nil || errN != nil || i < 1 || i > n {
		return "", 0, 0, false
	}
	return stem, int(i), int(n), true
}

// NthGGUF returns the name of file index, counted from 1, of the split model that name is a file of.
// SplitGGUF must accept name.
func NthGGUF(name string, index int) string {
	stem, _, count, _ := SplitGGUF(name)
	return fmt.Sprintf("%s-%05d-of-%05d%s", stem, index, count, name[len(name)-len(".gguf"):])
}

// WholeGGUFs returns the names of models among the names of GGUF files. Of a split model that is the
// first file, or, if that is missing, the first that is there. Encoders of images, whose names begin
// with mmproj, are no models.
func WholeGGUFs(names []string) []string {
	type model struct {
		stem  string
		count int
	}
	at := map[model]int{}
	var out []string
	for _, name := range names {
		stem, index, count, ok := SplitGGUF(name)
		if base := name[strings.LastIndexByte(name, '/')+1:]; strings.HasPrefix(strings.ToLower(base), "mmproj") {
			continue
		}
		if !ok {
			out = append(out, name)
			continue
		}
		m := model{stem, count}
		i, seen := at[m]
		if !seen {
			at[m] = len(out)
			out = append(out, name)
			continue
		}
		if _, has, _, _ := SplitGGUF(out[i]); index < has {
			out[i] = name
		}
	}
	return out
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
