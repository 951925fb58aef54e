//go:build linux && cgo && cuda

package driver

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gorgonia.org/cu"

	"vapp.dev/kernels/cuda"
)

// Built reports whether this binary has the native half.
const Built = true

// Devices lists the driver's devices. It allocates nothing on them. Errors: *NoDriver,
// *DriverTooOld, *NoDevice, *Error.
func Devices() ([]Info, error) {
	code, missing := status()
	switch {
	case missing != "":
		return nil, &NoDriver{missing}
	case code == codeNoDevice:
		return nil, &NoDevice{}
	case code != 0:
		return nil, failed("cuInit", code, "")
	}
	have := cu.Version()
	if have < cuda.OldestDriver {
		return nil, &DriverTooOld{Have: have, Need: cuda.OldestDriver}
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, wrap("cuDeviceGetCount", err, "")
	}
	if n == 0 {
		return nil, &NoDevice{Driver: have}
	}
	out := make([]Info, n)
	for i := range out {
		if out[i], err = info(i, have); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Emulate passes settings to an emulated driver, in the form of the environment variable
// VAPP_EMULATED (kernels/cuda/emulation/driver). It fails with a real driver.
func Emulate(settings string) error {
	if _, err := Devices(); err != nil {
		var none *NoDriver
		if errors.As(err, &none) {
			return err
		}
	}
	switch emulate(settings) {
	case 0:
		return nil
	case -1:
		return errors.New("the CUDA driver of this machine is not emulated")
	}
	return fmt.Errorf("the emulated driver has no setting %q", settings)
}

// Counted returns a count of an emulated driver; −1 with a real one. what is the name of a
// driver call ("cuMemAlloc"), "kernel" for all launches or a kernel's name, "bytes" for the
// device memory requested, "taken" for the device memory used, with contexts and graphs,
// "stacks" for that of kernels' stacks, "grown" for the launches that took some of it, or
// "pinned" for the pinned host memory.
func Counted(what string) int64 { return emulatedCount(what) }

// Free returns the device's free bytes, or 0 if unknown. It asks NVIDIA's management library,
// which takes longer than all other queries without a context.
func (i Info) Free() int64 {
	free := freeMemory(i.UUID)
	if free > i.Total { // for a MIG instance, the library reports the whole device
		return 0
	}
	return max(0, free)
}

func info(ordinal, version int) (Info, error) {
	at := fmt.Sprintf("device %d", ordinal)
	d, err := cu.GetDevice(ordinal)
	if err != nil {
		return Info{}, wrap("cuDeviceGet", err, at)
	}
	i := Info{Ordinal: ordinal, Driver: version, Emulated: emulate("") == 0}
	if i.Name, err = d.Name(); err != nil {
		return i, wrap("cuDeviceGetName", err, at)
	}
	i.Name = strings.TrimRight(i.Name, "\x00 ")
	if u, err := d.UUID(); err == nil {
		i.UUID = "GPU-" + u.String()
	}
	if i.Total, err = d.TotalMem(); err != nil {
		return i, wrap("cuDeviceTotalMem", err, at)
	}
	const (
		sharedPerBlockOptIn = 97 // newer than cu.DeviceAttribute's list
		modeExclusiveThread = 1
		modeProhibited      = 2
		modeExclusive       = 3
	)
	var l2, ecc, integrated, mode, clock, width int
	for _, q := range []struct {
		of cu.DeviceAttribute
		to *int
	}{
		{cu.ComputeCapabilityMajor, &i.Major}, {cu.ComputeCapabilityMinor, &i.Minor},
		{cu.MultiprocessorCount, &i.SMs}, {sharedPerBlockOptIn, &i.SharedPerBlock},
		{cu.MaxSharedMemoryPerMultiprocessor, &i.SharedPerSM}, {cu.L2CacheSize, &l2},
		{cu.EccEnabled, &ecc}, {cu.Integrated, &integrated}, {cu.ComputeMode, &mode},
		{cu.MemoryClockRate, &clock}, {cu.GlobalMemoryBusWidth, &width},
	} {
		if *q.to, err = d.Attribute(q.of); err != nil {
			return i, wrap("cuDeviceGetAttribute", err, at)
		}
	}
	i.L2, i.ECC, i.Integrated = int64(l2), ecc != 0, integrated != 0
	i.Prohibited, i.Exclusive = mode == modeProhibited, mode == modeExclusive || mode == modeExclusiveThread
	// Two transfers per clock: kHz times bits.
	i.Bandwidth = 2 * float64(clock) * 1000 * float64(width) / 8
	return i, nil
}

// code returns the CUresult in an error of gorgonia.org/cu.
func code(err error) int {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		return int(v.Int())
	}
	return codeUnknown
}

// wrap returns the *Error for an error of gorgonia.org/cu; nil for nil.
func wrap(call string, err error, device string) error {
	if err == nil {
		return nil
	}
	return failed(call, code(err), device)
}

// failed returns the error for a code; nil for 0.
func failed(call string, code int, device string) error {
	if code == 0 {
		return nil
	}
	name := codeName(code)
	if name == "" {
		name = fmt.Sprintf("CUDA error %d", code)
	}
	return &Error{Call: call, Code: code, Name: name, Device: device}
}
