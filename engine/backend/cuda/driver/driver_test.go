package driver

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestErrorsNameDeviceAndRemedy(t *testing.T) {
	h200 := Info{Ordinal: 1, Name: "NVIDIA H200", Major: 9, Total: 140 << 30}
	v100 := Info{Name: "Tesla V100", Major: 7}
	prohibited := Info{Name: "NVIDIA A100", Prohibited: true}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{&NoDriver{"libcuda.so.1: cannot open"}, []string{"libcuda.so.1: cannot open", "install NVIDIA's driver", "backend cpu"}},
		{&DriverTooOld{Have: 11080, Need: 12000}, []string{"CUDA 11.8", "the kernels need 12.0, driver 525", "update", "cuda-compat-12-9"}},
		{&NoDevice{}, []string{"CUDA_VISIBLE_DEVICES"}},
		{&NoSuchDevice{"NVIDIA H200", "9.0", 140 << 30, []Info{v100}}, []string{"NVIDIA H200 (compute capability 9.0, 140.00 GiB)", "Tesla V100 (compute capability 7.0", "CUDA_VISIBLE_DEVICES"}},
		{&BusyError{Device: h200}, []string{"device 1, NVIDIA H200", "another process", "nvidia-smi"}},
		{&BusyError{Device: prohibited}, []string{"nvidia-smi -c DEFAULT"}},
		{&MemoryError{h200, 200 << 30, 100 << 30, 140 << 30}, []string{"NVIDIA H200: too small", "200.00 GiB", "140.00 GiB"}},
		{&MemoryError{h200, 120 << 30, 100 << 30, 140 << 30}, []string{"100.00 of 140.00 GiB are free", "memory.utilization"}},
		{&NoKernelError{Device: v100}, []string{"Tesla V100", "compute capability 7.0", "8.0"}},
		{&HungError{"device 0, NVIDIA H200", time.Minute}, []string{"device 0, NVIDIA H200: no answer for 1m0s", "dmesg", "restart"}},
		{&Error{Call: "cuLaunchKernel", Code: 214, Name: "CUDA_ERROR_ECC_UNCORRECTABLE", Device: "device 0, NVIDIA H200", Kernel: "vapp_norm"},
			[]string{"device 0, NVIDIA H200: cuLaunchKernel of vapp_norm: CUDA_ERROR_ECC_UNCORRECTABLE: ", "reset or replace"}},
	} {
		for _, w := range c.want {
			if got := c.err.Error(); !strings.Contains(got, w) || strings.Contains(got, "\n") {
				t.Errorf("%T: %q, want one line with %q", c.err, got, w)
			}
		}
	}
}

func TestFatal(t *testing.T) {
	for code, want := range map[int]bool{1: false, 2: false, 214: true, 500: false, 600: false, 700: true, 719: true, 900: false, 999: true} {
		if got := (&Error{Code: code}).Fatal(); got != want {
			t.Errorf("code %d: fatal %v, want %v", code, got, want)
		}
	}
}

func TestAbsent(t *testing.T) {
	if Built {
		t.Skip("this binary has the driver's calls")
	}
	if _, err := Devices(); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("%v", err)
	}
}
