//go:build bundle

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/tests/gpu/agenda"
)

// TestBundle makes the bundle, unpacks it in an empty directory and does its small runs on the
// emulated driver, with no programs on the path. It checks that all parts except PyTorch's are done
// and that there are reports. Then it adds a program that fails and one that hangs, and checks that
// the other parts still run.
func TestBundle(t *testing.T) {
	dir := unpack(t)
	t.Setenv("VAPP_LIBCUBLASLT", cudatest.BLAS(t))
	pages, all := smallCheck(t, dir, "", 0, parts...)
	for _, r := range all {
		if want := map[bool]agenda.Status{true: agenda.Absent, false: agenda.OK}[r.Name == "torch"]; r.Status != want {
			t.Errorf("%s: %s, %s\n%s\n%s", r.Name, r.Status, r.Why, r.Output, r.Errors)
		}
	}
	for _, s := range []string{"# GPU check A: correctness", "# GPU check B: speed", "# GPU check C: serving", "## Decode and prefill", "## Graphs beside launches", "## Dependent launches beside plain ones", "## Where steps spend their time", "## Plan and reality", "| small-ops | 1 | 24 | decode |", "## Predicted, measured, limit", "request_throughput", "long_prompt_seconds"} {
		if !strings.Contains(pages, s) {
			t.Errorf("the reports have no %q", s)
		}
	}

	badMachines(t, dir)
	badLibraries(t, dir)

	write(t, filepath.Join(dir, "tests", "cuda.test"), "#!/bin/sh\necho broken >&2\nexit 3\n")
	write(t, filepath.Join(dir, "tests", "models.test"), "#!/bin/sh\n/bin/sleep 1000\n")
	pages, all = smallCheck(t, dir, "", 1, "--part", "plan,suite,goldens,small", "--time", "30s", "--keep-going")
	var became []string
	for _, r := range all {
		became = append(became, r.Name+" "+string(r.Status))
	}
	if want := []string{"plan ok", "suite failed", "goldens late", "small ok"}; !slices.Equal(became, want) || !strings.Contains(pages, "broken") {
		t.Errorf("%v, want %v\n%s", became, want, pages)
	}
}

// badMachines checks the report of a machine whose driver is too old and of one whose device is lost: a line for
// each part that says why, and what was measured before.
func badMachines(t *testing.T, dir string) {
	t.Helper()
	_, all := smallCheck(t, dir, "driver=11080", 1, "--part", "plan,goldens,small,serve", "--keep-going")
	for _, r := range all {
		if r.Status != agenda.Failed || !strings.Contains(r.Why, "the CUDA driver is for CUDA 11.8 and the kernels need 12.0, driver 525: update") || strings.Contains(r.Why, "\n") {
			t.Errorf("old driver: %s: %s, %q", r.Name, r.Status, r.Why)
		}
	}
	if len(all) != 4 {
		t.Errorf("old driver: %d parts are in the report", len(all))
	}
	// In the small run the first row has a little more than 200 launches and the second one as many.
	pages, all := smallCheck(t, dir, "fault=kernel:300:719", 1, "--part", "plan,small")
	if len(all) != 2 || all[0].Status != agenda.OK || all[1].Status != agenda.Failed || !strings.Contains(all[1].Why, "CUDA_ERROR_LAUNCH_FAILED: a kernel failed: ") {
		t.Errorf("lost device: %+v", all)
	}
	for _, s := range []string{"| small | 1 | 24 | ", "small: failed after 1 rows: ", "| small | 1 | 24 | decode |"} {
		if !strings.Contains(pages, s) {
			t.Errorf("the report of the lost device has no %q", s)
		}
	}
	if strings.Contains(pages, "| small | 3 | 24 | ") {
		t.Error("the report of the lost device has a row that was not measured")
	}
}

// badLibraries checks the report of machines whose cuBLASLt is of a wrong version, or half a wheel: a line for the part that
// needs it, and the rows of the part before, which does not.
func badLibraries(t *testing.T, dir string) {
	t.Helper()
	whole := cudatest.BLAS(t)
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	half, alone := filepath.Join(t.TempDir(), "libcublasLt.so.13"), lonely(t)
	write(t, half, string(b[:len(b)/2]))
	for _, c := range []struct {
		library, settings, want string
		status                  agenda.Status
	}{
		{whole, "version=110405", "cuBLASLt is 11.4.5 and 12.0.0 is needed: install NVIDIA's cuBLAS", agenda.Failed},
		{whole, "version=140000", "cuBLASLt is 14.0.0 and 13 is the newest major version that this vapp calls: install NVIDIA's cuBLAS", agenda.Failed},
		{whole, "create=1", "device 0, emulated GPU: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED: set cuda.linear to \"own\"", agenda.Failed},
		{half, "", "cuBLASLt cannot be used (" + half + " is not whole: it has ", agenda.Failed},
		{alone, "", "cuBLASLt cannot be used (" + alone + ": libsibling.so: cannot open shared object file: No such file or directory): install NVIDIA's cuBLAS", agenda.Failed},
		{"none", "", "no cuBLASLt (VAPP_LIBCUBLASLT is none): install NVIDIA's cuBLAS", agenda.Absent},
	} {
		t.Setenv("VAPP_LIBCUBLASLT", c.library)
		t.Setenv("VAPP_EMULATED_CUBLASLT", c.settings)
		code := 0
		if c.status.Bad() {
			code = 1
		}
		pages, all := smallCheck(t, dir, "", code, "--keep-going", "--part", "suite-cublaslt,small,small-cublaslt")
		if len(all) != 3 || all[1].Status != agenda.OK {
			t.Errorf("%s %s: %+v", c.library, c.settings, all)
			continue
		}
		for _, r := range []agenda.Result{all[0], all[2]} {
			if r.Status != c.status || !strings.Contains(r.Why, c.want) || strings.Contains(r.Why, "\n") {
				t.Errorf("%s %s: %s: %s, %q\n%s", c.library, c.settings, r.Name, r.Status, r.Why, r.Output)
			}
		}
		if !strings.Contains(pages, "| small | 3 | 24 | ") {
			t.Errorf("%s %s: the report has not what was measured", c.library, c.settings)
		}
	}
}

// lonely returns a library that needs another one which is not there.
func lonely(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path, sibling, source := filepath.Join(dir, "libcublasLt.so.13"), filepath.Join(dir, "libsibling.so"), filepath.Join(dir, "a.c")
	write(t, source, "int a;\n")
	for _, args := range [][]string{{"-o", sibling, source, "-Wl,-soname,libsibling.so"}, {"-o", path, source, "-Wl,--no-as-needed", sibling}} {
		if out, err := exec.Command("g++", append([]string{"-shared", "-fPIC"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.Remove(sibling); err != nil {
		t.Fatal(err)
	}
	return path
}

// unpack writes the bundle's archive and unpacks it, and returns the directory.
func unpack(t *testing.T) string {
	t.Helper()
	made, there := filepath.Join(t.TempDir(), "gpu-bundle"), t.TempDir()
	c := exec.Command("../../scripts/gpu-bundle.sh", made)
	c.Env = append(os.Environ(), "VAPP_NO_KERNELS=1", "VAPP_XZ_PRESET=0") // the emulated driver has its own kernels
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("tar", "xJf", made+".tar.xz", "-C", there).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(there, "gpu-bundle")
}

// smallCheck runs the bundle's gpu-check on a device with these settings and reads all reports and results.
func smallCheck(t *testing.T, bundle, settings string, code int, args ...string) (pages string, results []agenda.Result) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "report")
	c := exec.Command(filepath.Join(bundle, "gpu-check"), append([]string{"--small", "--out", out}, args...)...)
	c.Dir = t.TempDir()
	c.Env = []string{"PATH=/nowhere", "HOME=" + t.TempDir(), "VAPP_LIBCUDA=" + emulatedDriver(t), "VAPP_EMULATED=" + settings}
	for _, name := range []string{"VAPP_LIBCUBLASLT", "VAPP_EMULATED_CUBLASLT"} {
		c.Env = append(c.Env, name+"="+os.Getenv(name))
	}
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	start := time.Now()
	if err := c.Run(); c.ProcessState == nil || c.ProcessState.ExitCode() != code {
		t.Errorf("%v, want exit code %d\n%s", err, code, &said)
	}
	t.Logf("%v\n%s", time.Since(start).Round(time.Millisecond), &said)
	for _, run := range []string{"A", "B", "C"} {
		page, err := os.ReadFile(filepath.Join(out, run, "report.md"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // none of its parts was chosen
		} else if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(out, run, "results.json"))
		if err != nil {
			t.Fatal(err)
		}
		var own []agenda.Result
		if err := json.Unmarshal(raw, &own); err != nil {
			t.Fatal(err)
		}
		pages, results = pages+string(page), append(results, own...)
	}
	return pages, results
}

// emulatedDriver returns VAPP_LIBCUDA, or the library of `make emulated-driver`.
func emulatedDriver(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("VAPP_LIBCUDA"); path != "" {
		return path
	}
	path, err := filepath.Abs("../../.cache/emulation/libcuda.so")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: make emulated-driver builds it", err)
	}
	return path
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
