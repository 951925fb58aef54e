package cuda

import (
	"fmt"
	"strings"
)

// CUDA versions of drivers, as the driver reports them: 12080 is 12.8.
const (
	// Compiler is the version whose NVRTC compiles the kernels (scripts/kernels.sh).
	Compiler = 12090
	// OldestDriver is the first version that loads machine code of any CUDA 12: NVIDIA's minor
	// version compatibility (docs.nvidia.com/deploy/cuda-compatibility). It belongs to driver 525.
	OldestDriver = 12000
	// oldestBlackwell is the first version that knows compute capabilities 10.0 and 12.0: driver 570.
	oldestBlackwell = 12080
	// oldestPTX is the first version that compiles PTX of Compiler, ISA 8.8: driver 575. Minor version
	// compatibility does not cover PTX.
	oldestPTX = Compiler
	// OldestDependent is the first version in whose graphs kernels may begin while the one before runs: edges with data
	// (NVIDIA's release notes of CUDA 12.3 and programming guide, "CUDA Graphs"). It belongs to driver 545.
	OldestDependent = 12030
)

// branches are the driver branches of those versions, by NVIDIA's release notes of CUDA.
var branches = map[int]int{OldestDriver: 525, oldestBlackwell: 570, oldestPTX: 575}

// Code is the compiled form of the kernels that a device loads.
type Code struct {
	// Name is that of the entry in the archive of each file of kernels: "sm_90a.cubin" is machine
	// code, "compute_80.ptx" is PTX, which the driver compiles.
	Name string
}

// PTX reports whether the driver compiles the code when it loads it.
func (c Code) PTX() bool { return strings.HasSuffix(c.Name, ".ptx") }

// Dependent reports whether kernels of the code may be launched while the kernel before them runs, with a driver of a CUDA
// version. Those of earlier architectures, and of the PTX, do not wait for it.
func (c Code) Dependent(driver int) bool {
	switch c.Name {
	case "sm_90a.cubin", "sm_100.cubin", "sm_120.cubin":
		return driver >= OldestDependent
	}
	return false
}

// String describes the code: "machine code of sm_90a".
func (c Code) String() string {
	if c.PTX() {
		return "PTX of " + strings.TrimSuffix(c.Name, ".ptx")
	}
	return "machine code of " + strings.TrimSuffix(c.Name, ".cubin")
}

// DriverTooOld means that the driver cannot load the code for a device.
type DriverTooOld struct {
	Have, Need int    // CUDA versions: 12080 is 12.8
	Capability string // of the device, "10.0"; "" for every device
}

func (e *DriverTooOld) Error() string { return e.Why() + ": " + e.Remedy() }

// Why returns the versions of the driver.
func (e *DriverTooOld) Why() string {
	what := "the kernels need"
	if e.Capability != "" {
		what = "compute capability " + e.Capability + " needs"
	}
	return fmt.Sprintf("the CUDA driver is for CUDA %s and %s %s, driver %d", Version(e.Have), what, Version(e.Need), branches[e.Need])
}

// Remedy returns what to do.
func (e *DriverTooOld) Remedy() string {
	return fmt.Sprintf("update NVIDIA's driver, or on a data-center GPU install the package cuda-compat-%d-%d and set VAPP_LIBCUDA to its libcuda.so.1", Compiler/1000, Compiler%1000/10)
}

// NoCode means that there is no code for a device, whatever its driver.
type NoCode struct{ Capability string }

func (e *NoCode) Error() string {
	return fmt.Sprintf("no kernel for compute capability %s: 8.0 and newer run, older ones are planned only", e.Capability)
}

// CodeFor returns what a device of a compute capability loads with a driver of a CUDA version.
// Machine code runs on its own capability and on later ones with the same major number, that of
// sm_90a on 9.0 alone; other capabilities take the PTX. Errors: *DriverTooOld, *NoCode.
func CodeFor(driver, major, minor int) (Code, error) {
	capability := fmt.Sprintf("%d.%d", major, minor)
	name, need := "compute_80.ptx", oldestPTX
	switch {
	case major < 8:
		return Code{}, &NoCode{capability}
	case major == 8 && minor < 9:
		name, need = "sm_80.cubin", OldestDriver
	case major == 8:
		name, need = "sm_89.cubin", OldestDriver
	case major == 9 && minor == 0:
		name, need = "sm_90a.cubin", OldestDriver
	case major == 10:
		name, need = "sm_100.cubin", oldestBlackwell
	case major == 12:
		name, need = "sm_120.cubin", oldestBlackwell
	}
	if driver < need {
		return Code{}, &DriverTooOld{Have: driver, Need: need, Capability: capability}
	}
	return Code{name}, nil
}

// Version formats a CUDA version: 12080 is "12.8".
func Version(n int) string { return fmt.Sprintf("%d.%d", n/1000, n%1000/10) }
