package main

import (
	"os"
	"path/filepath"
	"slices"
)

// toolkits returns the directories in which programs of NVIDIA's toolkit may be that are not on the
// path: of installed toolkits, the newest first, of the profilers' own packages, and of wheels.
func toolkits() []string {
	var out []string
	for _, pattern := range append([]string{
		"/usr/local/cuda/bin", "/usr/local/cuda-*/bin", "/opt/nvidia/nsight-compute/*", "/usr/local/cuda/compute-sanitizer",
	}, wheels("nvidia/*/bin", "nvidia/cu*/compute-sanitizer")...) {
		found, err := filepath.Glob(pattern)
		if err != nil {
			continue // no pattern of these
		}
		slices.Reverse(found)
		out = append(out, found...)
	}
	return out
}

// wheels returns patterns of paths below the directories that Python's packages are in.
func wheels(paths ...string) []string {
	var roots []string
	for _, env := range []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")} {
		if env != "" {
			roots = append(roots, env+"/lib/python3*/site-packages")
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, home+"/.local/lib/python3*/site-packages")
	}
	roots = append(roots, "/opt/conda/lib/python3*/site-packages", "/usr/local/lib/python3*/*-packages", "/usr/lib/python3/dist-packages")
	var out []string
	for _, r := range roots {
		for _, p := range paths {
			out = append(out, filepath.Join(r, p))
		}
	}
	return out
}
