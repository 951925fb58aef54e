package driver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBLASPaths: cuBLASLt is looked for in the loader, in NVIDIA's wheels and in toolkits, newer ones
// first, each file once; VAPP_LIBCUBLASLT names it alone, and "none" is no library.
func TestBLASPaths(t *testing.T) {
	root := t.TempDir()
	venv, conda, home := filepath.Join(root, "env[1]*"), filepath.Join(root, "conda"), filepath.Join(root, "home")
	for _, file := range []string{
		"env[1]*/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
		"env[1]*/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"env1x/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
		"conda/lib/python3.10/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"conda/lib/python3.11/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"conda/lib/python3.11/site-packages/nvidia/cublas/lib/libcublas.so.12",
		"home/.local/lib/python3.9/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
		"usr/local/lib/python3.12/dist-packages/nvidia/cu13/lib/libcublasLt.so.13",
		"usr/lib/python3/dist-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"usr/local/cuda-12.8/lib64/libcublasLt.so.12",
		"usr/local/cuda-13.0/lib64/libcublasLt.so.13",
		"usr/local/cuda-13.1/lib64/libcublasLt.so.13",
	} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("cuda-13.0", filepath.Join(root, "usr/local/cuda")); err != nil {
		t.Fatal(err)
	}
	all := []string{
		"libcublasLt.so.13", "libcublasLt.so.12",
		"/env[1]*/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
		"/env[1]*/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"/conda/lib/python3.11/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"/conda/lib/python3.10/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"/home/.local/lib/python3.9/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
		"/usr/local/lib/python3.12/dist-packages/nvidia/cu13/lib/libcublasLt.so.13",
		"/usr/lib/python3/dist-packages/nvidia/cublas/lib/libcublasLt.so.12",
		"/usr/local/cuda/lib64/libcublasLt.so.13", // which is 13.0
		"/usr/local/cuda-13.1/lib64/libcublasLt.so.13",
		"/usr/local/cuda-12.8/lib64/libcublasLt.so.12",
	}
	for _, c := range []struct {
		what string
		env  map[string]string
		want []string
	}{
		{"all", map[string]string{"VIRTUAL_ENV": venv, "CONDA_PREFIX": conda, "HOME": home}, all},
		{"no environment", nil, slices.Concat(all[:2], all[7:])},
		{"a named one", map[string]string{"VAPP_LIBCUBLASLT": "/a/b.so", "VIRTUAL_ENV": venv}, []string{"/a/b.so"}},
		{"none", map[string]string{"VAPP_LIBCUBLASLT": "none", "VIRTUAL_ENV": venv}, nil},
		{"a toolkit", map[string]string{"CUDA_HOME": root + "/usr/local/cuda-13.1"}, slices.Concat(all[:2], all[7:9], []string{all[10], all[9], all[11]})},
	} {
		var got []string
		for _, p := range blasPaths(func(name string) string { return c.env[name] }, root) {
			got = append(got, strings.TrimPrefix(p, root))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %s\nwant %s", c.what, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestWithoutLt: half a wheel, with cuBLAS and without the cuBLASLt beside it, is named; a whole one and a place without both are not.
func TestWithoutLt(t *testing.T) {
	const lib = "nvidia/cu13/lib"
	for _, c := range []struct {
		files, named, want string
	}{
		{"libcublas.so.13", "", "/libcublas.so.13 is there and libcublasLt.so.13 beside it is missing"},
		{"libcublas.so.13 libcublasLt.so.13", "", ""},
		{"libcudnn.so.9", "", ""},
		{"libcublas.so.13", NoLibrary, ""},
	} {
		home := t.TempDir()
		dir := filepath.Join(home, ".local/lib/python3.12/site-packages", lib)
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(c.files) {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		got := withoutLt(func(name string) string { return map[string]string{"HOME": home, "VAPP_LIBCUBLASLT": c.named}[name] }, t.TempDir())
		if c.want != "" {
			c.want = dir + c.want
		}
		if got != c.want {
			t.Errorf("%s %s: %q, want %q", c.files, c.named, got, c.want)
		}
	}
}
