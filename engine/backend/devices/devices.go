// Package devices is the catalogue of machines that can be planned for without having one:
// GPUs by name, and CPUs by their size.
//
// It must not probe the machine or know a backend's kernels. Start reading at Find and at
// devices.json.
//
// Every figure of a GPU is in devices.json. Its memory is what the driver reports, which is
// less than advertised; Source names who reported it or says that it is assumed. Rates and
// bandwidths are the vendor's peaks, dense and, for 16 and 8 bits, summed in float32. A CPU's
// name contains its size (cpu-16c-64g, cpu-16c-64g-amx); cpu.go has the assumptions about it.
package devices

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/nearest"
)

//go:embed devices.json
var table []byte

// The values of Device.Kind.
const (
	GPU = "gpu"
	CPU = "cpu"
)

// Device is one row of the catalogue. Unknown figures are 0.
type Device struct {
	Name       string   `json:"name"` // "a100-80g"
	Kind       string   `json:"kind"` // GPU or CPU
	DriverName string   `json:"driver_name"`
	Aliases    []string `json:"aliases"`
	TotalBytes int64    `json:"total_bytes"` // memory as the driver reports it
	Source     string   `json:"source"`      // who reported TotalBytes
	// CPUs only.
	Cores    int      `json:"cores,omitempty"`
	Variants []string `json:"variants"` // instruction sets, best first
	// GPUs only.
	SMs         int    `json:"sms,omitempty"`
	Capability  string `json:"capability,omitempty"`   // CUDA's compute capability, "8.0"; of AMD the target, "gfx942"
	SharedBytes int64  `json:"shared_bytes,omitempty"` // shared memory of an SM

	L2Bytes   int64   `json:"l2_bytes"`  // of the whole GPU, or of one CPU core
	Bandwidth float64 `json:"bandwidth"` // of memory, bytes per second
	FP16      float64 `json:"fp16"`      // dense products of fp16 or bf16, FLOP per second
	FP8       float64 `json:"fp8,omitempty"`
	FP4       float64 `json:"fp4,omitempty"`
	// Batch is vLLM's default for a GPU of this name and memory.
	Batch Batch `json:"batch"`
	// PlanOnly is the reason why programs cannot run on the device; "": they can.
	PlanOnly string `json:"plan_only,omitempty"`
	// CUBLASLt is the version of cuBLASLt that is assumed beside the device, "13.0.0"; "": none.
	CUBLASLt string `json:"-"`
}

// Batch is a pair of batch limits; zeroes if vLLM has no rule.
type Batch struct {
	Tokens int `json:"max_num_batched_tokens"`
	Seqs   int `json:"max_num_seqs"`
}

// BatchDefaults returns the limits of vLLM's API server (0.17 and later) if the user sets
// none. They depend on the device's name in the driver and its memory.
func BatchDefaults(driverName string, totalBytes int64) Batch {
	if totalBytes >= 70<<30 && !strings.Contains(strings.ToLower(driverName), "a100") {
		return Batch{Tokens: 8192, Seqs: 1024}
	}
	return Batch{Tokens: 2048, Seqs: 256}
}

// UnknownError is the error for a name that is not in the catalogue.
type UnknownError struct {
	Name        string
	Suggestions []string // similar names in the catalogue
	Assumed     string   // what follows a "+" in the name, if that is the mistake
}

func (e *UnknownError) Error() string {
	hint := "\"vapp devices\" lists them"
	switch {
	case e.Assumed != "":
		hint = "a GPU of CUDA may end in " + libraryMark + "13.0, the version of an installed cuBLASLt, from 12.0 on"
	case strings.HasPrefix(strings.ToLower(e.Name), "cpu"):
		hint = "a CPU is named by its size, such as cpu-16c-64g, and may end in -avx2, -avx512, -avx512bf16 or -amx"
	case len(e.Suggestions) > 0:
		hint = "did you mean " + strings.Join(e.Suggestions, ", ") + "?"
	}
	name := e.Name
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	return fmt.Sprintf("device %q is not in the catalogue; %s", name, hint)
}

// libraryMark is between a device's name and the version of a cuBLASLt that is assumed beside it.
const libraryMark = "+cublaslt="

// Find returns the device of a name: its name in the catalogue, an alias, or its name in the
// driver. Case and punctuation are ignored. A GPU's name may end in "+cublaslt=13.0": then a
// cuBLASLt of this version is assumed. The error is an *UnknownError.
func Find(name string) (Device, error) {
	base, _, marked := strings.Cut(name, "+")
	if !marked {
		return find(name)
	}
	d, err := find(base)
	if err != nil {
		return d, err
	}
	version, ok := strings.CutPrefix(strings.ToLower(name[len(base):]), libraryMark)
	version, valid := libraryVersion(version)
	if !ok || !valid || d.Kind != GPU || !strings.Contains(d.Capability, ".") {
		return Device{}, &UnknownError{Name: name, Assumed: name[len(base):]}
	}
	d.CUBLASLt = version
	return d, nil
}

// libraryVersion returns a version of cuBLASLt with its three numbers: "13.0.0" for "13.0". The
// oldest is 12.0.
func libraryVersion(text string) (string, bool) {
	parts := strings.Split(text, ".")
	if len(parts) > 3 {
		return "", false
	}
	var n [3]int
	for i, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil || v < 0 || v > 99 || strconv.Itoa(v) != p {
			return "", false
		}
		n[i] = v
	}
	return fmt.Sprintf("%d.%d.%d", n[0], n[1], n[2]), n[0] >= 12
}

func find(name string) (Device, error) {
	t, err := read()
	if err != nil {
		return Device{}, err
	}
	if d, ok := sizedCPU(name); ok {
		return d, nil
	}
	key := nearest.Folded(name)
	owner := map[string]string{} // by name or alias
	var names []string
	for _, d := range t.GPUs {
		for _, n := range append([]string{d.Name, d.DriverName}, d.Aliases...) {
			if key != "" && nearest.Folded(n) == key {
				return d, nil
			}
			owner[n] = d.Name
			names = append(names, n)
		}
	}
	e := &UnknownError{Name: name}
	for _, n := range nearest.Names(name, names, len(names)) {
		if n = owner[n]; len(e.Suggestions) < 3 && !slices.Contains(e.Suggestions, n) {
			e.Suggestions = append(e.Suggestions, n)
		}
	}
	return Device{}, e
}

// List returns the whole catalogue: GPUs by age, then common sizes of CPUs.
func List() ([]Device, error) {
	t, err := read()
	if err != nil {
		return nil, err
	}
	out := t.GPUs
	for _, c := range t.CPUs {
		for _, v := range variants {
			out = append(out, newCPU(c[0], c[1], v.name))
		}
	}
	return out, nil
}

// catalogue is the form of devices.json.
type catalogue struct {
	GPUs []Device `json:"gpus"`
	CPUs [][2]int `json:"cpus"` // cores and GiB
}

func read() (catalogue, error) {
	var t catalogue
	if err := json.Unmarshal(table, &t); err != nil {
		return t, fmt.Errorf("catalogue of devices: %w", err)
	}
	for i := range t.GPUs {
		d := &t.GPUs[i]
		d.Kind = GPU
		d.Batch = BatchDefaults(d.DriverName, d.TotalBytes)
		d.Variants = []string{d.Capability}
		if major, minor, ok := strings.Cut(d.Capability, "."); ok {
			d.Variants[0] = "sm_" + major + minor
		}
	}
	return t, nil
}

// Facts returns the device's facts for a backend's Layout: not measured, and no memory in
// use.
func (d Device) Facts(backendName string) backend.Facts {
	f := backend.Facts{
		Backend: backendName, Device: d.DriverName, TotalBytes: d.TotalBytes, Cores: d.Cores, Variants: d.Variants,
		PageBytes: 4096, L2Bytes: d.L2Bytes, SMs: d.SMs, Capability: d.Capability, SharedBytes: d.SharedBytes,
		Bandwidth: d.Bandwidth, MatrixRate: d.FP16, PlanOnly: d.PlanOnly, MemoryLimit: "device", CUBLASLt: d.CUBLASLt,
	}
	if d.Kind == CPU {
		f.HugeBytes, f.MemoryLimit = 2<<20, "system"
	}
	return f
}
