package devices

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The largest CPU that a name can describe.
const (
	maxCores = 1024
	maxGiB   = 64 << 10
)

// These values are assumed for a CPU. Its memory is all the process's, as under a control
// group's limit. Every core reads coreBandwidth until the socket's channels are saturated,
// and the rates of cores add up. The rates of one core were measured on cloud machines of the
// named instruction sets.
const coreBandwidth = 12e9

// variant is an instruction set. It has the instruction sets that such a machine also
// supports, the bandwidth of eight memory channels of its time in bytes a second, the rate of
// one core's 16-bit products (float32 without those) in FLOP a second, and a core's
// second-level cache in bytes.
type variant struct {
	name      string
	sets      []string
	bandwidth float64
	rate      float64
	l2        int64
}

// variants are the instruction sets; a name without one means the first.
var variants = []variant{
	{"avx512", []string{"avx512", "avx2", "generic"}, 204.8e9, 0.23e12, 1 << 20},
	{"avx2", []string{"avx2", "generic"}, 204.8e9, 0.115e12, 512 << 10},
	{"avx512bf16", []string{"avx512bf16", "avx512", "avx2", "generic"}, 307.2e9, 0.235e12, 1 << 20},
	{"amx", []string{"amx", "avx512bf16", "avx512", "avx2", "generic"}, 307.2e9, 3.5e12, 2 << 20},
}

// cpuName returns "cpu-16c-64g" for variants[0], else the same with the variant appended.
func cpuName(cores, gib int, set string) string {
	name := fmt.Sprintf("cpu-%dc-%dg", cores, gib)
	if set != "" && set != variants[0].name {
		name += "-" + set
	}
	return name
}

// sizedCPU reads cpu-<cores>c-<GiB>g and cpu-<cores>c-<GiB>g-<variant>, of any
// size within bounds.
func sizedCPU(name string) (Device, bool) {
	parts := strings.Split(strings.ToLower(strings.ReplaceAll(name, "_", "-")), "-")
	if len(parts) < 3 || len(parts) > 4 || parts[0] != "cpu" {
		return Device{}, false
	}
	cores, okCores := count(parts[1], "c", maxCores)
	gib, okGiB := count(parts[2], "g", maxGiB)
	set := variants[0].name
	if len(parts) == 4 {
		set = parts[3]
	}
	known := slices.ContainsFunc(variants, func(v variant) bool { return v.name == set })
	if !okCores || !okGiB || !known {
		return Device{}, false
	}
	return newCPU(cores, gib, set), true
}

// count reads "16c" for the unit "c": 1 to most, without leading zeros.
func count(s, unit string, most int) (int, bool) {
	digits, ok := strings.CutSuffix(s, unit)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 1 && n <= most && strconv.Itoa(n) == digits
}

// DefaultVariant is the instruction set of a CPU whose name has none.
const DefaultVariant = "avx512"

// CPUOf returns a CPU machine with this memory in bytes. set is an instruction set that a name of
// the catalogue may end in; "" or an unknown one: DefaultVariant.
func CPUOf(cores int, memory int64, set string) Device {
	if !slices.ContainsFunc(variants, func(v variant) bool { return v.name == set }) {
		set = DefaultVariant
	}
	d := newCPU(cores, int(memory>>30), set)
	if d.TotalBytes != memory {
		d.Name, d.Aliases, d.TotalBytes = fmt.Sprintf("cpu-%dc-%dm", cores, memory>>20), []string{}, memory
	}
	return d
}

// newCPU returns the device of a size; set is one of variants.
func newCPU(cores, gib int, set string) Device {
	i := slices.IndexFunc(variants, func(v variant) bool { return v.name == set })
	v := variants[i]
	d := Device{
		Name: cpuName(cores, gib, set), Kind: CPU, Aliases: []string{},
		DriverName: "x86-64 with " + v.name,
		TotalBytes: int64(gib) << 30, Source: "assumed: the process may use all of it; bandwidth and rate are assumed too",
		Cores: cores, Variants: v.sets, L2Bytes: v.l2,
		Bandwidth: min(float64(cores)*coreBandwidth, v.bandwidth), FP16: float64(cores) * v.rate,
	}
	if set == variants[0].name {
		d.Aliases = append(d.Aliases, d.Name+"-"+set)
	}
	return d
}
