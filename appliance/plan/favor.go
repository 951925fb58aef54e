package plan

import (
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/speed"
	"vapp.dev/kernels"
)

// Favored is a format of the model's weights with the kernels among which cpu.favor selects.
type Favored struct {
	Format  string            `json:"format"`
	Kernels []backend.Favored `json:"kernels"`
}

// checkFavor refuses cpu.favor if the profile also forces a variant that has no such kernel for a
// format of the model. The error names both.
func (w resolved) checkFavor() error {
	if w.options.Backend.Favor == "" {
		return nil
	}
	without := w.options.Backend
	without.Favor = ""
	plain, err := w.in.Opener.Layout(w.in.Facts, without)
	if err != nil {
		return err
	}
	for _, s := range w.in.Model.Family.Weights() {
		if _, err := w.layout.Weight(s); err != nil {
			if _, other := plain.Weight(s); other == nil {
				return w.in.Profile.Reject("cpu.favor", "%v; leave cpu.favor or cpu.variant out", err)
			}
		}
	}
	return nil
}

// favored returns the formats of the model's matrices for which the machine has several kernels, in
// the order of the weights. Rates are measured ones where there are.
func (w resolved) favored() []Favored {
	l, ok := w.layout.(backend.Favoring)
	if !ok {
		return nil
	}
	var out []Favored
	var seen []kernels.Format
	for _, s := range w.in.Model.Family.Weights() {
		if s.Use&backend.Multiply == 0 || s.RoundInputs {
			continue
		}
		for _, f := range storedFormats(s) {
			if slices.Contains(seen, f) {
				continue
			}
			seen = append(seen, f)
			list := l.Favored(f)
			for i := range list {
				if r, ok := w.measured(list[i].Kernel, f); ok {
					list[i].Rate = r
				}
			}
			if list != nil {
				out = append(out, Favored{f.String(), list})
			}
		}
	}
	return out
}

// measured returns the rate of a kernel for weights stored as f as shares of the machine's limits;
// false if it was not measured.
func (w resolved) measured(kernel string, f kernels.Format) (backend.KernelRate, bool) {
	r := w.in.Rates
	if r == nil {
		return backend.KernelRate{}, false
	}
	elems, bytes := f.Block()
	k := r.Kernel(kernel, float64(bytes)/float64(elems))
	return backend.KernelRate{Decode: k.Decode / r.Read, Prefill: k.Prefill / r.BF16, Basis: string(k.Basis)}, k.Basis == speed.Measured
}

// storedFormats returns the formats in which the parts of a matrix are stored.
func storedFormats(s backend.WeightSpec) []kernels.Format {
	if f := s.Stored(); f != kernels.Invalid {
		return []kernels.Format{f}
	}
	var out []kernels.Format
	for _, p := range s.Parts {
		out = append(out, p.Format)
	}
	return out
}

// writeFavored prints the kernels among which cpu.favor selects, the one that is taken first.
func (p *Plan) writeFavored(t *text) {
	for _, f := range p.Favored {
		var out []string
		for _, k := range f.Kernels {
			s := fmt.Sprintf("%s (%s): %s", k.Kernel, strings.Join(k.Favors, ", "), rate(k.Rate))
			if k.Taken {
				out = append([]string{"takes " + s}, out...)
			} else {
				out = append(out, "not "+s)
			}
		}
		t.wide(16, "favor, "+f.Format, strings.Join(out, "; "))
	}
}

// rate returns a kernel's rate as text.
func rate(r backend.KernelRate) string {
	if r.Basis == "" {
		return "its rate was not measured"
	}
	return fmt.Sprintf("decodes at %.2f of the bandwidth, prompts at %.2f of the matrix rate, %s", r.Decode, r.Prefill, r.Basis)
}
