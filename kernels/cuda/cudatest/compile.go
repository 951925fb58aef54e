package cudatest

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Sanitize is the environment variable that has the kernels compiled with
// AddressSanitizer.
const Sanitize = "VAPP_CUDA_SANITIZE"

var compiler = []string{"-std=c++17", "-O1", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-function", "-pthread"}

// Source is the environment variable that names another folder of kernels: mutants.
const Source = "VAPP_CUDA_SOURCE"

// build compiles the units of source, once for each state of it, and returns the
// binary: every .cu file but the one that includes the others, and emulation/main.cc.
func build(source string) (string, error) {
	flags := compiler
	if os.Getenv(Sanitize) != "" {
		flags = append(flags[:len(flags):len(flags)], "-fsanitize=address", "-g1")
	}
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	if _, err := exec.LookPath(cxx); err != nil {
		return "", fmt.Errorf("%w: the kernels' tests need a C++ compiler (g++, or CXX)", err)
	}
	var headers []byte
	var units []string
	for _, pattern := range []string{"*.cuh", "emulation/*.h", "emulation/*.cc", "*.cu"} {
		files, err := filepath.Glob(filepath.Join(source, pattern))
		if err != nil {
			return "", err
		}
		for _, f := range files {
			if ext := filepath.Ext(f); ext == ".cc" || ext == ".cu" && filepath.Base(f) != "kernels.cu" {
				units = append(units, f)
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil {
				return "", err
			}
			headers = append(headers, b...)
		}
	}
	cache, err := filepath.Abs("../../.cache/emulation")
	if err != nil {
		return "", err
	}
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
			objects[i], errs[i] = object(cache, cxx, flags, headers, u)
			<-slots
		}()
	}
	work.Wait()
	for _, err := range errs {
		if err != nil {
			return "", err
		}
	}
	key := sha256.Sum256([]byte(strings.Join(objects, "\n")))
	return made(filepath.Join(cache, fmt.Sprintf("emulation-%x", key[:10])), func(out string) *exec.Cmd {
		return exec.Command(cxx, append(append([]string{}, flags...), append(objects, "-o", out)...)...)
	})
}

// object compiles one unit.
func object(cache, cxx string, flags []string, headers []byte, unit string) (string, error) {
	b, err := os.ReadFile(unit)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, cxx, flags, filepath.Base(unit))
	h.Write(headers)
	h.Write(b)
	name := fmt.Sprintf("%s-%x.o", strings.TrimSuffix(filepath.Base(unit), filepath.Ext(unit)), h.Sum(nil)[:10])
	return made(filepath.Join(cache, name), func(out string) *exec.Cmd {
		return exec.Command(cxx, append(append([]string{}, flags...), "-x", "c++", "-c", unit, "-o", out)...)
	})
}

// made is path, which cmd makes where it is not there yet; several processes may.
func made(path string, cmd func(out string) *exec.Cmd) (string, error) {
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

var compiled = sync.OnceValues(func() (string, error) { return build(cmp.Or(os.Getenv(Source), ".")) })

// Open is a device of its own for a test of the folder of the kernels, closed when the
// test ends.
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
