package appliance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

// TargetOf returns the device of a profile's target, nil without one. It returns an error for
// a GPU that the catalogue lacks.
func TargetOf(p *schema.Profile) (*devices.Device, error) {
	t := p.Target
	switch {
	case t == nil:
		return nil, nil
	case t.GPU == "" && t.Cores == 0:
		return nil, p.Reject("target", "names no machine; give gpu, such as \"h100-80g\", or memory and cores of a CPU machine")
	case t.GPU == "":
		d := devices.CPUOf(t.Cores, int64(t.Memory), t.Variant)
		return &d, nil
	}
	d, err := devices.Find(t.GPU)
	var unknown *devices.UnknownError
	switch {
	case errors.As(err, &unknown) && strings.HasPrefix(strings.ToLower(t.GPU), "cpu"):
		return nil, p.Reject("target.gpu", "%q is no GPU; a CPU machine is target: {memory: \"64GiB\", cores: 16}", clip(t.GPU))
	case errors.As(err, &unknown):
		return nil, p.Reject("target.gpu", "%v", err)
	case err != nil:
		return nil, err
	case d.Kind == devices.CPU:
		variant := ""
		if set := d.Variants[0]; set != devices.DefaultVariant {
			variant = fmt.Sprintf(", variant: %q", set)
		}
		return nil, p.Reject("target.gpu", "%s is a CPU machine; write target: {memory: %q, cores: %d%s}", d.Name, schema.Bytes(d.TotalBytes), d.Cores, variant)
	}
	return &d, nil
}

// clip truncates a long text of a profile before it is printed.
func clip(s string) string {
	const most = 64
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// CheckTarget returns the error of a target that is not in the device catalogue.
func CheckTarget(p *schema.Profile) error {
	_, err := TargetOf(p)
	return err
}

// atTarget returns m with the device of the profile's target, where UseTarget asks for it and m
// names no other machine.
func (m Machine) atTarget(p *schema.Profile) (Machine, error) {
	d, err := TargetOf(p)
	if err != nil || d == nil || !m.UseTarget || m.Device != nil || m.Memory > 0 {
		return m, err
	}
	m.Device = d
	return m, nil
}

// OffTarget returns the profile's target and the machine of the plan in words, if they differ; ""
// if they do not, or there is no target.
func (p *Prepared) OffTarget() (target, machine string) {
	d, err := TargetOf(p.Profile)
	if err != nil || d == nil {
		return "", ""
	}
	f := p.Plan.Facts
	target, machine = targetText(*d), machineText(f)
	switch {
	case !sameMachine(*d, f):
		return target, machine
	case p.chosenByLibrary() && (d.CUBLASLt == "") != (f.CUBLASLt == ""):
		return target + libraryText(d.CUBLASLt), machine + libraryText(f.CUBLASLt)
	}
	return "", ""
}

// chosenByLibrary reports whether the plan would differ if the machine had, or lacked, cuBLASLt.
func (p *Prepared) chosenByLibrary() bool {
	if p.Profile.CUDA != nil && p.Profile.CUDA.Linear != "auto" {
		return false
	}
	return slices.ContainsFunc(p.Plan.Choices, func(c backend.Choice) bool { return c.Name == "linear" })
}

// libraryText returns the library of a machine in words that follow the machine.
func libraryText(version string) string {
	if version == "" {
		return " without cuBLASLt"
	}
	return " with cuBLASLt " + version
}

// slack is the share of a machine's memory, as a divisor, that firmware and kernel may keep: a
// machine sold with 64 GiB reports less.
const slack = 16

// sameMachine reports whether the facts are those of the device: the same model of GPU, or as many
// cores and as much memory.
func sameMachine(d devices.Device, f backend.Facts) bool {
	if d.Kind == devices.GPU {
		here, err := devices.Find(f.Device)
		return err == nil && here.Name == d.Name
	}
	off := f.TotalBytes - d.TotalBytes
	return f.SMs == 0 && f.Cores == d.Cores && max(off, -off) <= d.TotalBytes/slack
}

// targetText returns a device in words: "h100-80g", "16 cores and 64 GiB".
func targetText(d devices.Device) string {
	if d.Kind == devices.GPU {
		return d.Name
	}
	return coresText(d.Cores) + " and " + plan.Size(d.TotalBytes)
}

// machineText returns a machine in words.
func machineText(f backend.Facts) string {
	if f.Cores == 0 || f.SMs > 0 {
		return fmt.Sprintf("%s with %s", f.Device, plan.Size(f.TotalBytes))
	}
	return fmt.Sprintf("%s and %s (%s)", coresText(f.Cores), plan.Size(f.TotalBytes), f.Device)
}

func coresText(n int) string {
	if n == 1 {
		return "1 core"
	}
	return fmt.Sprintf("%d cores", n)
}
