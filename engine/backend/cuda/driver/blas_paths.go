package driver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// blasNames are the names of cuBLASLt, that of the newest CUDA first.
var blasNames = []string{"libcublasLt.so.13", "libcublasLt.so.12"}

// NoLibrary is the value of VAPP_LIBCUBLASLT with which no cuBLASLt is looked for.
const NoLibrary = "none"

// blasPaths returns the files to open as cuBLASLt, the first first: the one in VAPP_LIBCUBLASLT alone,
// or the loader's, then those of NVIDIA's wheels in the virtual environment, Conda's, the home
// directory and the system's Python, then those of CUDA's toolkits. root is "/" except in tests.
func blasPaths(getenv func(string) string, root string) []string {
	switch named := getenv("VAPP_LIBCUBLASLT"); named {
	case "":
	case NoLibrary:
		return nil
	default:
		return []string{named}
	}
	return slices.Concat(blasNames, installed(getenv, root, blasNames))
}

// installed returns the files with the names of a library in the places of blasPaths: names[0] is that of CUDA 13,
// names[1] that of CUDA 12.
func installed(getenv func(string) string, root string, names []string) (out []string) {
	for _, place := range []struct{ base, under string }{
		{getenv("VIRTUAL_ENV"), "lib/python3*/site-packages"},
		{getenv("CONDA_PREFIX"), "lib/python3*/site-packages"},
		{getenv("HOME"), ".local/lib/python3*/site-packages"},
		{filepath.Join(root, "usr"), "local/lib/python3*/*-packages"},
		{filepath.Join(root, "usr"), "lib/python3*/*-packages"},
	} {
		// The wheels of CUDA 13 share a folder, those of CUDA 12 have one each.
		for i, folder := range []string{"nvidia/cu13/lib", "nvidia/cublas/lib"} {
			out = append(out, matching(place.base, place.under, folder, names[i])...)
		}
	}
	for i, toolkit := range []string{"cuda-13*", "cuda-12*"} {
		name := names[i]
		out = append(out, matching(getenv("CUDA_HOME"), "lib64", name)...)
		out = append(out, matching(filepath.Join(root, "usr/local/cuda"), "lib64", name)...)
		out = append(out, matching(filepath.Join(root, "usr/local"), toolkit, "lib64", name)...)
	}
	return unique(out)
}

// withoutLt returns, where cuBLAS is installed and cuBLASLt beside it is missing, which file is there and which is not; ""
// where there is none, and where VAPP_LIBCUBLASLT says what to open.
func withoutLt(getenv func(string) string, root string) string {
	if getenv("VAPP_LIBCUBLASLT") != "" {
		return ""
	}
	for _, path := range installed(getenv, root, []string{"libcublas.so.13", "libcublas.so.12"}) {
		missing := strings.Replace(filepath.Base(path), "cublas", "cublasLt", 1)
		if _, err := os.Lstat(filepath.Join(filepath.Dir(path), missing)); os.IsNotExist(err) {
			return path + " is there and " + missing + " beside it is missing"
		}
	}
	return ""
}

// matching returns the files that match a pattern below base, the last in order first: the newest
// Python or toolkit. It returns nothing for base "".
func matching(base string, pattern ...string) []string {
	if base == "" {
		return nil
	}
	found, err := filepath.Glob(filepath.Join(append([]string{escaped(base)}, pattern...)...))
	if err != nil {
		return nil
	}
	slices.Reverse(found)
	return found
}

// escaped returns a path whose characters of patterns stand for themselves.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// unique returns paths without those whose file comes earlier.
func unique(paths []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, p := range paths {
		file := p
		if real, err := filepath.EvalSymlinks(p); err == nil && strings.Contains(p, "/") {
			file = real
		}
		if !seen[file] {
			seen[file] = true
			out = append(out, p)
		}
	}
	return out
}

// ofLoader reports whether a path is a bare name, for which the loader searches.
func ofLoader(path string) bool { return !strings.Contains(path, "/") }

// candidates returns the files to open as cuBLASLt on this machine.
func candidates() []string { return blasPaths(os.Getenv, "/") }
