package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels/cuda"
)

func TestCodeFor(t *testing.T) {
	for _, c := range []struct {
		driver, major, minor int
		want                 string
	}{
		{12000, 8, 0, "sm_80.cubin"},
		{12000, 8, 6, "sm_80.cubin"},
		{12000, 8, 9, "sm_89.cubin"},
		{12020, 9, 0, "sm_90a.cubin"},
		{13000, 9, 0, "sm_90a.cubin"},
		{14010, 8, 0, "sm_80.cubin"},
		{12080, 10, 0, "sm_100.cubin"},
		{12090, 10, 3, "sm_100.cubin"},
		{12080, 12, 0, "sm_120.cubin"},
		{12090, 12, 1, "sm_120.cubin"},
		{12090, 11, 0, "compute_80.ptx"},
		{13010, 13, 0, "compute_80.ptx"},
		{13000, 9, 1, "compute_80.ptx"},
		{11080, 8, 0, "12.0"},
		{0, 9, 0, "12.0"},
		{12070, 10, 0, "12.8"},
		{12040, 12, 0, "12.8"},
		{12080, 11, 0, "12.9"},
		{12080, 13, 0, "12.9"},
		{13000, 7, 5, "none"},
		{11040, 7, 0, "none"},
	} {
		code, err := cuda.CodeFor(c.driver, c.major, c.minor)
		got := code.Name
		var old *cuda.DriverTooOld
		var none *cuda.NoCode
		switch {
		case errors.As(err, &old):
			got = cuda.Version(old.Need)
			for _, w := range []string{
				"driver is for CUDA " + cuda.Version(c.driver) + " ", fmt.Sprintf("capability %d.%d needs %s, driver 5", c.major, c.minor, got),
				": update NVIDIA's driver", "cuda-compat-12-9", "VAPP_LIBCUDA",
			} {
				if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q, want one line with %q", err, w)
				}
			}
		case errors.As(err, &none):
			if got = "none"; !strings.Contains(err.Error(), none.Capability+": 8.0 and newer run") {
				t.Errorf("%q", err)
			}
		case err != nil:
			t.Errorf("%v", err)
		}
		if got != c.want {
			t.Errorf("driver %d, capability %d.%d: %s, want %s", c.driver, c.major, c.minor, got, c.want)
		}
		if err != nil && code != (cuda.Code{}) {
			t.Errorf("code %v with error %v", code, err)
		}
	}
}

// TestCodeOfArchitectures checks that each architecture is the code of the device that it is named
// after, and that scripts/kernels.sh compiles these architectures with the compiler of that version.
func TestCodeOfArchitectures(t *testing.T) {
	var names []string
	for _, a := range cuda.Architectures() {
		n := 0
		fmt.Sscanf(a.Name, "sm_%d", &n)
		code, err := cuda.CodeFor(cuda.Compiler, n/10, n%10)
		if err != nil || code.Name != a.Name+".cubin" {
			t.Errorf("%s: %v, %v", a.Name, code, err)
		}
		names = append(names, strings.TrimPrefix(a.Name, "sm_"))
	}
	script, err := os.ReadFile("../../scripts/kernels.sh")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^every="(.*)"$`).FindSubmatch(script)
	if m == nil {
		t.Fatal("scripts/kernels.sh names no architectures")
	}
	compiled := strings.Fields(string(m[1]))
	slices.Sort(compiled)
	slices.Sort(names)
	if !slices.Equal(compiled, names) {
		t.Errorf("scripts/kernels.sh compiles for %v, the catalogue has %v", compiled, names)
	}
	pins, err := os.ReadFile("requirements.txt")
	if want := "nvidia-cuda-nvrtc-cu12==" + cuda.Version(cuda.Compiler) + "."; err != nil || !strings.Contains(string(pins), want) {
		t.Errorf("requirements.txt pins no %s (%v)", want, err)
	}
}

// TestDependent checks which code has kernels that wait for the kernel before, and from which driver on.
func TestDependent(t *testing.T) {
	for name, want := range map[string]bool{"sm_80.cubin": false, "sm_89.cubin": false, "sm_90a.cubin": true, "sm_100.cubin": true, "sm_120.cubin": true, "compute_80.ptx": false, "": false} {
		c := cuda.Code{Name: name}
		if c.Dependent(cuda.OldestDependent) != want || c.Dependent(cuda.OldestDependent-1) || c.Dependent(13000) != want {
			t.Errorf("%q: dependent launches %v, want %v", name, !want, want)
		}
	}
}

// driversTable returns docs/cuda-drivers.md.
func driversTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString(`# Drivers and GPUs

What a GPU loads with a driver, generated from ` + "`cuda.CodeFor`" + ` (` + "`make docs`" + `, or ` + "`go test ./kernels/cuda -run TestDriversPage -update`" + `). NVRTC of
CUDA ` + cuda.Version(cuda.Compiler) + ` compiles the kernels. A driver loads machine code of every toolkit of its own major version and of older ones, so machine code of CUDA 12
runs from driver 525 on. Blackwell is known to drivers from 570 on. PTX is compiled by the driver, which has to accept its ISA (8.8, driver 575): only
GPUs without machine code take it. **No device has run this yet**; which version loads what is NVIDIA's
[compatibility guide](https://docs.nvidia.com/deploy/cuda-compatibility/). ` + "`vapp doctor`" + ` names the driver's version and what each GPU loads.

`)
	drivers := []struct{ branch, cuda int }{{470, 11040}, {520, 11080}, {525, 12000}, {535, 12020}, {545, 12030}, {550, 12040}, {560, 12060}, {570, 12080}, {575, 12090}, {580, 13000}}
	// Neighbours with the same column are one: the first of them, "or newer".
	rows := []struct {
		what         string
		major, minor int
	}{
		{"7.5 and older (Turing, Volta)", 7, 5}, {"8.0 (A100)", 8, 0}, {"8.6, 8.7 (A10, A40, RTX 30)", 8, 6}, {"8.9 (L4, L40S, RTX 40)", 8, 9}, {"9.0 (H100, H200)", 9, 0},
		{"10.0, 10.3 (B200, B300)", 10, 0}, {"11.0 (Thor)", 11, 0}, {"12.0, 12.1 (RTX 50, RTX PRO)", 12, 0}, {"later", 13, 0},
	}
	cell := func(driver, major, minor int) string {
		code, err := cuda.CodeFor(driver, major, minor)
		var old *cuda.DriverTooOld
		switch {
		case errors.As(err, &old):
			return "refused: CUDA " + cuda.Version(old.Need)
		case err != nil:
			return "planned only"
		}
		return "`" + strings.TrimSuffix(strings.TrimSuffix(code.Name, ".cubin"), ".ptx") + "`" + map[bool]string{true: " PTX"}[code.PTX()]
	}
	var columns [][]string
	var heads []string
	for i, d := range drivers {
		var column []string
		for _, r := range rows {
			column = append(column, cell(d.cuda, r.major, r.minor))
		}
		head := fmt.Sprintf("%d (CUDA %s)", d.branch, cuda.Version(d.cuda))
		if i > 0 && slices.Equal(column, columns[len(columns)-1]) {
			heads[len(heads)-1] = strings.SplitN(heads[len(heads)-1], " to ", 2)[0] + " to " + head
			continue
		}
		columns, heads = append(columns, column), append(heads, head)
	}
	heads[len(heads)-1] = strings.SplitN(heads[len(heads)-1], " to ", 2)[0] + " and newer"
	fmt.Fprintf(&b, "| compute capability | %s |\n|---|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for i, r := range rows {
		fmt.Fprintf(&b, "| %s |", r.what)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", c[i])
		}
		b.WriteString("\n")
	}
	_, refused := cuda.CodeFor(11080, 9, 0)
	fmt.Fprintf(&b, `
A refusal is one line, for example:

    %s

On data-center GPUs NVIDIA's package cuda-compat brings a newer driver library beside an older kernel module; which modules it supports is in the
compatibility guide. vapp opens the library that `+"`VAPP_LIBCUDA`"+` names, for example /usr/local/cuda-12.9/compat/libcuda.so.1.

## Dependent launches

On machine code of sm_90a, sm_100 and sm_120 a kernel is launched while the one before it runs, prefetches weights and waits
([why that is safe](../kernels/cuda/design.md#dependent-launches)). `+"`cuLaunchKernelEx`"+` is in every driver that is accepted, but graphs
keep such launches from CUDA `+cuda.Version(cuda.OldestDependent)+` (driver 545) on: edges with data, by the release notes of CUDA 12.3. With an older driver, on compute
capability 8.x and with PTX every launch is a plain one; `+"`vapp doctor`"+` says what a GPU gets. `+"`VAPP_PLAIN_LAUNCHES=1`"+` makes all launches plain ones, to measure the difference.

## Newer functions of the driver

Four functions that vapp calls are newer than driver 525. Each has a way without it:

| function | since | without it |
|---|---|---|
| `+"`cuLaunchKernelEx`"+` with dependent launches in graphs | CUDA `+cuda.Version(cuda.OldestDependent)+` | kernels begin when the one before has ended |
| `+"`cuFuncLoad`"+` | CUDA 12.4 | nothing: `+"`cuModuleGetFunction`"+` of those drivers loads the kernel's code |
| `+"`cuFuncGetParamInfo`"+` | CUDA 12.4 | the size of a kernel's argument struct is the catalogue's, not checked against the loaded code |
| `+"`cuEventElapsedTime_v2`"+` | CUDA 12.8 | `+"`cuEventElapsedTime`"+`, with the same parameters |
`, refused)
	return b.String()
}

// TestDriversPage checks that docs/cuda-drivers.md agrees with CodeFor.
func TestDriversPage(t *testing.T) {
	goldentest.ComparePage(t, "../..", "cuda-drivers.md", driversTable(t))
}
