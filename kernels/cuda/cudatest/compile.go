package cudatest

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Sanitize is the environment variable that enables AddressSanitizer for the kernels.
const Sanitize = "VAPP_CUDA_SANITIZE"

// Source is the environment variable that names another folder of kernels, for mutants.
const Source = "VAPP_CUDA_SOURCE"

var compiler = []string{"-std=c++17", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-function", "-pthread"}

// target describes a binary that is compiled from source.
type target struct {
	name              string
	from, flags, link []string
}

// shared are the flags of all targets, so that the process and the library have the same objects of
// the kernels.
var shared = []string{"-O2", "-fPIC", "-fvisibility=hidden"}

var (
	process = target{"emulation", []string{"emulation/*.cc", "*.cu"}, shared, nil}
	library = target{"libcuda", []string{"emulation/driver/*.cc", "*.cu"}, shared, []string{"-shared", "-Wl,-soname,libcuda.so.1"}}
	nccl    = target{"libnccl", []string{"emulation/nccl/*.cc"}, shared, []string{"-shared", "-ldl", "-lrt"}}
	blas    = target{"libcublasLt", []string{"emulation/cublaslt/*.cc"}, shared, []string{"-shared", "-ldl"}}
)

// build compiles a target once for each state of its source, and returns its path.
func (g target) build(source string) (string, error) {
	flags := append(slices.Clone(compiler), g.flags...)
	if os.Getenv(Sanitize) != "" && g.name == process.name {
		flags = append(flags, "-fsanitize=address", "-g1")
	}
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	if _, err := exec.LookPath(cxx); err != nil {
		return "", fmt.Errorf("%w: the kernels' tests need a C++ compiler (g++, or CXX)", err)
	}
	units, err := g.units(source)
	if err != nil {
		return "", err
	}
	root, err := tree()
	if err != nil {
		return "", err
	}
	cache := filepath.Join(root, ".cache", "emulation")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	objects := make([]string, len(units))
	errs := make([]error, len(units))
	var work sync.WaitGroup
	slots := make(chan bool, 2)
	for i, u := range units {
		work.Add(1)
		go func() {
			defer work.Done()
			slots <- true
			objects[i], errs[i] = object(cache, cxx, flags, u)
			<-slots
		}()
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(strings.Join(append(objects, g.link...), "\n")))
	return made(filepath.Join(cache, fmt.Sprintf("%s-%x", g.name, key[:10])), func(out string) *exec.Cmd {
		return exec.Command(cxx, slices.Concat(flags, g.link, objects, []string{"-o", out})...)
	})
}

// units returns the files to compile.
func (g target) units(source string) (units []string, err error) {
	for _, pattern := range g.from {
		files, err := filepath.Glob(filepath.Join(source, pattern))
		if err != nil {
			return nil, err
		}
		units = append(units, slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "kernels.cu" })...)
	}
	return units, nil
}

var included = regexp.MustCompile(`(?m)^#include "(.+)"$`)

// write writes a file to h and, once each, the files of these folders that it includes.
func write(h io.Writer, path string, seen map[string]bool) error {
	if path = filepath.Clean(path); seen[path] {
		return nil
	}
	seen[path] = true
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	h.Write(b)
	for _, m := range included.FindAllSubmatch(b, -1) {
		if err := write(h, filepath.Join(filepath.Dir(path), string(m[1])), seen); err != nil {
			return err
		}
	}
	return nil
}

// tree returns the root of the module that the test runs in.
func tree() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = up
	}
	return "", err
}

// object compiles one unit. A mutant's unit runs only a few times, so it is not optimized;
// unused code of a mutant is not an error.
func object(cache, cxx string, flags []string, unit string) (string, error) {
	name := func(flags []string) (string, error) {
		h := sha256.New()
		fmt.Fprintln(h, cxx, flags, filepath.Base(unit))
		err := write(h, unit, map[string]bool{})
		return filepath.Join(cache, fmt.Sprintf("%s-%x.o", strings.TrimSuffix(filepath.Base(unit), filepath.Ext(unit)), h.Sum(nil)[:10])), err
	}
	path, err := name(flags)
	if err != nil {
		return "", err
	}
	if _, missing := os.Stat(path); missing != nil && os.Getenv(Source) != "" {
		flags = append(slices.Clone(flags), "-O0", "-w")
		if path, err = name(flags); err != nil {
			return "", err
		}
	}
	return made(path, func(out string) *exec.Cmd {
		return exec.Command(cxx, append(slices.Clone(flags), "-x", "c++", "-c", unit, "-o", out)...)
	})
}

// made returns path, after cmd has made the file if it did not exist. Several processes may
// call it; one of them makes the file and the others wait.
func made(path string, cmd func(out string) *exec.Cmd) (string, error) {
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	free, err := lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer free()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	next := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(next)
	if out, err := cmd(next).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(path), err, out)
	}
	return path, os.Rename(next, path)
}

var compiled = sync.OnceValues(func() (string, error) { return process.build(cmp.Or(os.Getenv(Source), ".")) })

// BuildDriver compiles the emulated driver (kernels/cuda/emulation/driver) if necessary, and
// returns the path of the library. It is also linked as .cache/emulation/libcuda.so.
var BuildDriver = sync.OnceValues(func() (string, error) {
	root, err := tree()
	if err != nil {
		return "", err
	}
	path, err := library.build(cmp.Or(os.Getenv(Source), filepath.Join(root, "kernels", "cuda")))
	if err != nil {
		return "", err
	}
	return path, link(path, "libcuda.so")
})

// link links a library under a name beside it.
func link(path, name string) error {
	next := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s.%d", name, os.Getpid()))
	if err := os.Symlink(filepath.Base(path), next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(filepath.Dir(path), name))
}

// BLAS returns the path of an emulated cuBLASLt (kernels/cuda/emulation/cublaslt) on the
// emulated driver, for VAPP_LIBCUBLASLT.
func BLAS(t testing.TB) string {
	t.Helper()
	return built(t, blas)
}

// NCCL returns the path of an emulated NCCL (kernels/cuda/emulation/nccl) on the emulated driver,
// for VAPP_LIBNCCL.
func NCCL(t testing.TB) string {
	t.Helper()
	return built(t, nccl)
}

// BuildNCCL is NCCL without a test. The library is also linked as .cache/emulation/libnccl.so.
func BuildNCCL() (string, error) {
	path, err := inTree(nccl)
	if err != nil {
		return "", err
	}
	return path, link(path, "libnccl.so")
}

// BuildBLAS is BLAS without a test.
func BuildBLAS() (string, error) { return inTree(blas) }

// inTree compiles a library from this tree if necessary.
func inTree(g target) (string, error) {
	root, err := tree()
	if err != nil {
		return "", err
	}
	return g.build(filepath.Join(root, "kernels", "cuda"))
}

// built compiles a library if necessary.
func built(t testing.TB, g target) string {
	t.Helper()
	root, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	path, err := g.build(filepath.Join(root, "kernels", "cuda"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Driver returns the path of the emulated driver, for VAPP_LIBCUDA. Set it before the process
// first opens a device.
func Driver(t testing.TB) string {
	t.Helper()
	path, err := BuildDriver()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Use makes the process use the emulated driver, unless VAPP_GPU says that the machine has a
// device to test on. Call it before the process first opens a device.
func Use(t testing.TB) {
	t.Helper()
	if os.Getenv("VAPP_GPU") == "" {
		t.Setenv("VAPP_LIBCUDA", Driver(t))
	}
}

// Open returns a device for a test of the folder of the kernels; it is closed when the test
// ends.
func Open(t testing.TB) *Device {
	t.Helper()
	path, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	d, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
