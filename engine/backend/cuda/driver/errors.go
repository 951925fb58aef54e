package driver

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"vapp.dev/kernels/cuda"
)

// NoDriver means that the driver's library is missing or cannot be loaded.
type NoDriver struct{ Why string }

func (e *NoDriver) Error() string {
	return fmt.Sprintf("no CUDA driver on this machine (%s): install NVIDIA's driver for CUDA %s or newer, or choose backend cpu", e.Why, cuda.Version(cuda.OldestDriver))
}

// DriverTooOld means that the driver cannot load the kernels of any device, or of one.
type DriverTooOld = cuda.DriverTooOld

// NoDevice means that the driver has no device that this process may use.
type NoDevice struct{ Driver int }

func (e *NoDevice) Error() string {
	return "the CUDA driver finds no device: nvidia-smi lists the devices, CUDA_VISIBLE_DEVICES may hide it, a container needs --gpus"
}

// NoSuchDevice means that this machine lacks the device of the plan.
type NoSuchDevice struct {
	Name, Capability string
	Total            int64 // bytes
	Have             []Info
}

func (e *NoSuchDevice) Error() string {
	var have []string
	for _, i := range e.Have {
		have = append(have, i.String())
	}
	return fmt.Sprintf("the plan is for %s (compute capability %s, %.2f GiB) and this machine has %s: plan for one of these, or look at CUDA_VISIBLE_DEVICES, which may hide it",
		e.Name, e.Capability, float64(e.Total)/(1<<30), strings.Join(have, ", "))
}

// BusyError means that another process uses the device exclusively, or that its compute mode
// lets no process open it.
type BusyError struct {
	Device Info
	Err    error
}

func (e *BusyError) Error() string {
	what := "another process has it for itself: end that one (nvidia-smi lists it) or choose another device"
	if e.Device.Prohibited {
		what = "its compute mode lets no process in: nvidia-smi -c DEFAULT changes that"
	}
	return fmt.Sprintf("device %d, %s: busy: %s", e.Device.Ordinal, e.Device.Name, what)
}

func (e *BusyError) Unwrap() error { return e.Err }

// MemoryError means that the device has too little memory in total, or too little free memory
// now.
type MemoryError struct {
	Device            Info
	Need, Free, Total int64
}

// TooSmall reports whether even the whole device is too small, whatever other processes use.
func (e *MemoryError) TooSmall() bool { return e.Need > e.Total }

func (e *MemoryError) Error() string {
	const gib = 1 << 30
	at := fmt.Sprintf("device %d, %s", e.Device.Ordinal, e.Device.Name)
	if e.TooSmall() {
		return fmt.Sprintf("%s: too small: %.2f GiB are needed and it has %.2f GiB: choose a larger device or plan for this one", at, float64(e.Need)/gib, float64(e.Total)/gib)
	}
	return fmt.Sprintf("%s: %.2f GiB are needed and %.2f of %.2f GiB are free: end the processes that hold the rest (nvidia-smi lists them) or lower memory.utilization",
		at, float64(e.Need)/gib, float64(e.Free)/gib, float64(e.Total)/gib)
}

// NoKernelError means that the kernels have no code for the device, or that its driver refuses it
// (Err is an *Error then).
type NoKernelError struct {
	Device Info
	Err    error
}

func (e *NoKernelError) Error() string {
	at := fmt.Sprintf("device %d, %s: ", e.Device.Ordinal, e.Device.Name)
	if refused := (*Error)(nil); errors.As(e.Err, &refused) {
		return at + "its driver refuses the kernels: " + refused.Name + ": make kernels builds them again; docs/cuda-drivers.md says which drivers take them"
	}
	return at + (&cuda.NoCode{Capability: e.Device.Capability()}).Error()
}

func (e *NoKernelError) Unwrap() error { return e.Err }

// BLASNeed is the oldest supported cuBLASLt, in its own numbering.
const BLASNeed = 120000

// BLASNewest is the newest supported major version of cuBLASLt.
const BLASNewest = 13

// BLASNeedScales is the oldest cuBLASLt with scales of 8-bit floats by row and by blocks of
// 128.
const BLASNeedScales = 120900

// NoBLAS means that cuBLASLt is required and is missing, or that the one which is there or is named cannot be
// loaded, or lacks a function.
type NoBLAS struct {
	Why    string // names the file, unless Absent
	Absent bool   // none was found; else one was, or is named in VAPP_LIBCUBLASLT, and cannot be used
}

func (e *NoBLAS) Error() string {
	if !e.Absent {
		return fmt.Sprintf("cuBLASLt cannot be used (%s): install NVIDIA's cuBLAS of CUDA 12 or 13 again, or name another libcublasLt.so in VAPP_LIBCUBLASLT, or set cuda.linear to \"own\"", e.Why)
	}
	return fmt.Sprintf("no cuBLASLt (%s): install NVIDIA's cuBLAS of CUDA 12 or 13 (the package libcublas, or the wheel nvidia-cublas), or name its libcublasLt.so.13 or .12 in VAPP_LIBCUBLASLT, or set cuda.linear to \"own\"", e.Why)
}

// notInstalled is the reason where no cuBLASLt was found.
const notInstalled = "neither the loader nor Python's packages nor /usr/local/cuda have it"

// BLASTooOld means that cuBLASLt is older than required.
type BLASTooOld struct{ Have, Need int }

func (e *BLASTooOld) Error() string {
	return fmt.Sprintf("cuBLASLt is %s and %s is needed: install NVIDIA's cuBLAS of CUDA 12 or 13, or set cuda.linear to \"own\"", BLASVersion(e.Have), BLASVersion(e.Need))
}

// BLASTooNew means that cuBLASLt is of a later major version of CUDA than those whose calls are known.
type BLASTooNew struct{ Have int }

func (e *BLASTooNew) Error() string {
	return fmt.Sprintf("cuBLASLt is %s and %d is the newest major version that this vapp calls: install NVIDIA's cuBLAS of CUDA 12 or 13, or set cuda.linear to \"own\"", BLASVersion(e.Have), BLASNewest)
}

// BLASVersion returns a version of cuBLASLt as text: "13.1.1" for 130101.
func BLASVersion(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// NoAlgorithm means that cuBLASLt has no algorithm for a product.
type NoAlgorithm struct {
	Rows, In, Out int
	Format        string
	Workspace     int64 // bytes that it may use
}

func (e *NoAlgorithm) Error() string {
	return fmt.Sprintf("cuBLASLt has no algorithm for %d rows times %d×%d of %s within %d bytes of workspace: install a newer one, or set cuda.linear to \"own\"", e.Rows, e.Out, e.In, e.Format, e.Workspace)
}

// BLASError is the error of a failed call of cuBLASLt.
type BLASError struct {
	Call   string // "cublasLtMatmul"
	Status int    // cublasStatus_t
	Name   string // "CUBLAS_STATUS_NOT_SUPPORTED"
	Device string
}

func (e *BLASError) Error() string {
	return fmt.Sprintf("%s: %s: %s: set cuda.linear to \"own\", and report this line where the driver and cuBLAS are of one release", e.Device, e.Call, e.Name)
}

// OutOfMemory reports whether the device or the host has too little memory left.
func (e *BLASError) OutOfMemory() bool { return e.Status == statusAllocFailed }

const statusAllocFailed = 3 // CUBLAS_STATUS_ALLOC_FAILED

// BLASWrong means that cuBLASLt ran a product and its numbers are wrong.
type BLASWrong struct {
	Device, Version string
	Algorithm       int // of those that the library offers, from 0
	Got, Want       float32
}

func (e *BLASWrong) Error() string {
	return fmt.Sprintf("%s: cuBLASLt %s multiplies wrongly: algorithm %d has %v for %v: install NVIDIA's cuBLAS again, or set cuda.linear to \"own\"", e.Device, e.Version, e.Algorithm, e.Got, e.Want)
}

// HungError means that the device does not respond. Every call that would free something of
// it blocks forever: the process has to end.
type HungError struct {
	Device string // "device 0, NVIDIA H200"
	Waited time.Duration
}

func (e *HungError) Error() string {
	return fmt.Sprintf("%s: no answer for %v: a kernel hangs, or the device is lost: restart; if it happens again, look for Xid in the kernel's log (dmesg) and reset the device (nvidia-smi --gpu-reset)", e.Device, e.Waited)
}

// Error is the error of a failed call of the driver.
type Error struct {
	Call   string // "cuMemAlloc"
	Code   int    // CUresult
	Name   string // "CUDA_ERROR_OUT_OF_MEMORY"
	Device string // "device 0, NVIDIA H200"; "" before a device is open
	Kernel string // the launched kernel, or ""
}

func (e *Error) Error() string {
	s := e.Call
	if e.Device != "" {
		s = e.Device + ": " + s
	}
	if e.Kernel != "" {
		s += " of " + e.Kernel
	}
	s += ": " + e.Name
	r := remedies[e.Code]
	if e.Code == codeOutOfMemory && e.Call == "cuMemHostAlloc" {
		r = "the host has no memory left that can be pinned: end other processes, give the container more memory, or lower memory.swapSpace"
	}
	if r != "" {
		s += ": " + r
	}
	return s
}

// Fatal reports whether the context is unusable from now on: the process has to end.
func (e *Error) Fatal() bool { return fatal[e.Code] }

// OutOfMemory reports whether the device, or for Pinned the host, has too little memory left.
func (e *Error) OutOfMemory() bool { return e.Code == codeOutOfMemory }

// Codes of the driver (CUresult) that are handled separately.
const (
	codeInvalidValue    = 1
	codeOutOfMemory     = 2
	codeUnavailable     = 46
	codeNoDevice        = 100
	codeInvalidImage    = 200
	codeNoBinary        = 209
	codeECC             = 214
	codeInvalidPTX      = 218
	codeNVLink          = 220
	codeNoCompiler      = 221
	codeUnsupportedPTX  = 222
	codeNoJIT           = 223
	codeContained       = 226
	codeOperatingSystem = 304
	codeNotFound        = 500
	codeNotReady        = 600
	codeIllegalAddress  = 700
	codeLaunchTimeout   = 702
	codeLaunchFailed    = 719
	codeNotReadySystem  = 802
	codeMismatch        = 803
	codeUnknown         = 999
)

// fatal are the codes after which every call of the context fails.
var fatal = map[int]bool{
	4: true, codeECC: true, codeNVLink: true, codeContained: true, codeIllegalAddress: true, codeLaunchTimeout: true,
	709: true, 710: true, 714: true, 715: true, 716: true, 717: true, 718: true, codeLaunchFailed: true, 720: true, 721: true, codeUnknown: true,
}

const defect = "a kernel made an illegal access: a defect of vapp; restart and report this line"

var remedies = map[int]string{
	codeOutOfMemory:     "the device has no memory left: end other processes on it (nvidia-smi lists them) or lower memory.utilization",
	codeUnavailable:     "another process has the device for itself: end it (nvidia-smi lists it) or choose another device",
	codeNoBinary:        "the kernels have no code for this device",
	codeECC:             "the device's memory has an error that cannot be corrected: restart; if it happens again, reset or replace the device (nvidia-smi -q -d ECC)",
	codeContained:       "the device's memory has an error that cannot be corrected: restart; if it happens again, reset or replace the device (nvidia-smi -q -d ECC)",
	codeNVLink:          "the link between devices failed: restart; if it happens again, look at nvidia-smi nvlink -s",
	codeUnsupportedPTX:  "the driver is older than the kernels: update NVIDIA's driver (docs/cuda-drivers.md)",
	codeOperatingSystem: "the operating system refused: is /dev/nvidia* there and may this process open it?",
	codeIllegalAddress:  defect,
	710:                 defect,
	714:                 defect,
	715:                 defect,
	716:                 defect,
	717:                 defect,
	718:                 defect,
	codeLaunchTimeout:   "a kernel ran too long for a device that also draws a screen: use another device",
	codeLaunchFailed:    "a kernel failed: restart; if it happens again, look for Xid in the kernel's log (dmesg)",
	codeNotReadySystem:  "the system is not ready yet: NVIDIA's fabric manager has to run",
	codeMismatch:        "the driver's library and kernel module are of different versions: reboot, or install them again",
	codeUnknown:         "the driver cannot say what failed: look for NVRM or Xid in the kernel's log (dmesg)",
}
