package cpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// maxThreads bounds Settings.Threads.
const maxThreads = 1024

// layout is the pure half.
type layout struct {
	variant, why string
	threads      int
	share        float64 // of the time, left to others
	unit         int64   // arenas are multiples of it
}

func newLayout(f backend.Facts, s backend.Settings) (layout, error) {
	l := layout{variant: s.Variant, why: "as set", threads: s.Threads, share: s.HTTPShare, unit: max(f.HugeBytes, f.PageBytes, 4096)}
	have := f.Variants
	if len(have) == 0 {
		have = []string{generic}
	}
	if s.Variant == "" {
		l.variant, l.why = have[0], "the best of "+strings.Join(have, ", ")
	}
	if !slices.Contains(have, l.variant) {
		return layout{}, backend.Unsupported(name, "variant "+l.variant, "this machine has "+strings.Join(have, ", "))
	}
	if len(kcpu.SupportedFormats(l.variant)) == 0 {
		return layout{}, backend.Unsupported(name, "variant "+l.variant, "there are no kernels for it")
	}
	if s.Threads < 0 || s.Threads > maxThreads {
		return layout{}, backend.Unsupported(name, fmt.Sprintf("%d threads", s.Threads), fmt.Sprintf("0 (one for each core) to %d", maxThreads))
	}
	if !(s.HTTPShare >= 0 && s.HTTPShare < 1) {
		return layout{}, backend.Unsupported(name, fmt.Sprintf("an HTTP share of %g", s.HTTPShare), "it is at least 0 and below 1")
	}
	if l.threads == 0 {
		l.threads = min(max(1, f.Cores), maxThreads)
	}
	return l, nil
}

// Choices names the variant, the threads and what they leave to others.
func (l layout) Choices() []backend.Choice {
	threads := "one for each core"
	share := "threads rest after a step when others were waiting for a processor"
	if l.share == 0 {
		share = "threads never rest"
	}
	return []backend.Choice{
		{Name: "variant", Value: l.variant, Why: l.why},
		{Name: "threads", Value: strconv.Itoa(l.threads), Why: threads},
		{Name: "http share", Value: strconv.FormatFloat(l.share, 'g', -1, 64), Why: share},
	}
}

// KVFormats are all that attention reads: half precision with the longer
// mantissa, then with the wider range, then single precision, then 8-bit floats.
func (l layout) KVFormats() []kernels.Format {
	return []kernels.Format{kernels.F16, kernels.BF16, kernels.F32, kernels.F8E4M3, kernels.F8E5M2}
}

// Round is up to whole huge pages, or pages where those are off.
func (l layout) Round(n int64) int64 { return (n + l.unit - 1) / l.unit * l.unit }

// Weight stores vectors as F32, tables that are only looked up row by row in their
// own format, and what is multiplied packed for the variant: in its own format
// where Linear has a kernel for it, else converted to BF16.
func (l layout) Weight(w backend.WeightSpec) (backend.Packed, error) {
	for _, p := range w.Parts {
		if !kcpu.Lookup(p.Format) && !planned(p.Format) {
			return backend.Packed{}, backend.Unsupported(name, "weight "+w.Name, "a part is stored as "+p.Format.String())
		}
		n := w.Cols
		if p.Elems > 0 {
			n = p.Elems
		}
		if block, _ := p.Format.Block(); n%block != 0 {
			return backend.Packed{}, backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("rows of %d are no whole %v blocks", n, p.Format))
		}
	}
	if w.Rows <= 0 || w.Cols <= 0 {
		return backend.Packed{}, backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("its shape is %d×%d", w.Rows, w.Cols))
	}
	if w.Use&backend.Vector != 0 {
		return backend.Packed{Format: kernels.F32, Bytes: align(4 * w.Elems()), Kernel: "vector"}, nil
	}
	p := backend.Packed{Format: w.Stored()}
	if p.Format == kernels.Invalid {
		p.Format, p.Note = kernels.BF16, "its parts have several formats: converted to bf16"
	}
	if w.Use&backend.Multiply == 0 {
		p.Bytes, p.Kernel = align(int64(w.Rows)*p.Format.Bytes(int64(w.Cols))), "rows"
		return p, nil
	}
	if w.Experts > 0 || planned(p.Format) {
		return l.plannedWeight(w, p)
	}
	if !slices.Contains(kcpu.SupportedFormats(l.variant), p.Format) {
		p.Format, p.Note = kernels.BF16, fmt.Sprintf("no kernel multiplies %v: converted to bf16", w.Source)
	}
	var ok bool
	if p.Bytes, p.Kernel, ok = kcpu.LinearLayout(l.variant, p.Format, w.Rows, w.Cols); !ok {
		return p, backend.Unsupported(name, "weight "+w.Name, fmt.Sprintf("no %s kernel multiplies %d×%d %v", l.variant, w.Rows, w.Cols, p.Format))
	}
	return p, nil
}

// planned says of a format that it will be multiplied as it is and has no kernel yet.
func planned(f kernels.Format) bool {
	return f == kernels.F8E4M3 || f == kernels.F8E5M2 || f == kernels.MXFP4
}

// panel is how many output features lie side by side in a packed matrix.
const panel = 16

// plannedWeight is the room of a weight that Runs refuses for now: panels of
// output features as every format has them, and F32 scales.
func (l layout) plannedWeight(w backend.WeightSpec, p backend.Packed) (backend.Packed, error) {
	rows := (int64(w.Rows) + panel - 1) / panel * panel
	each := align(rows * p.Format.Bytes(int64(w.Cols)))
	p.Bytes = int64(max(1, w.Experts))*each + align(4*w.Scales())
	p.Kernel = "planned"
	return p, nil
}

func align(n int64) int64 { return (n + 63) / 64 * 64 }
