package nccl

import (
	"os"
	"path/filepath"
	"slices"
)

// soname is the library's name.
const soname = "libnccl.so.2"

// candidates returns what to open, the first first: the library in VAPP_LIBNCCL alone, or the
// loader's, then those of NVIDIA's wheel in the virtual environment, the home directory and the
// system's Python.
func candidates(getenv func(string) string) []string {
	if named := getenv("VAPP_LIBNCCL"); named != "" {
		return []string{named}
	}
	out := []string{soname}
	for _, place := range []struct{ root, under string }{
		{getenv("VIRTUAL_ENV"), "lib/python3*/site-packages"},
		{getenv("CONDA_PREFIX"), "lib/python3*/site-packages"},
		{getenv("HOME"), ".local/lib/python3*/site-packages"},
		{"/usr", "local/lib/python3*/*-packages"},
		{"/usr", "lib/python3*/*-packages"},
	} {
		if place.root == "" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(place.root, place.under, "nvidia", "nccl", "lib", soname))
		if err != nil { // a root with a bracket is no pattern
			continue
		}
		slices.Reverse(found) // the newest Python first
		out = append(out, found...)
	}
	return out
}

// paths returns the candidates on this machine.
func paths() []string { return candidates(os.Getenv) }
