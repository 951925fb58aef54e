package plan

import (
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// variant is a resolved profile with another value of one field. It may fit or not.
type variant struct {
	Change
	resolved resolved
}

// byVariant returns the variants that fit.
func byVariant(w resolved, _ *shortError) []Change {
	var out []Change
	seen := map[string]bool{} // of several values of a field only the first that fits is listed
	for _, v := range w.variants() {
		key := v.Path
		if strings.HasPrefix(key, "parallel.") {
			key = "parallel" // the fewest ranks, by tensor rather than by pipeline
		}
		if !seen[key] && v.resolved.fits() {
			seen[key] = true
			if key == "parallel" && v.resolved.isRefused() {
				v.Cost += planOnlyCost
			}
			out = append(out, v.Change)
		}
	}
	return out
}

// isRefused reports whether vapp up refuses w: the device does not run the model so.
func (w resolved) isRefused() bool {
	s, err := w.solve()
	return err != nil || s.account.PlanOnly != nil
}

// variants returns the variants that may free memory: K and V in fewer bytes, weights quantized
// at load, no graphs, keys rebuilt from values, and more ranks. It also returns those with the
// goal's numbers if the profile's are smaller.
func (w resolved) variants() []variant {
	out := w.goalVariants()
	out = append(out, w.dtypes()...)
	if w.onGPU() && w.in.Model.Source.Build.Quantize == kernels.Invalid {
		out = w.addBuild(out, "quantization", "none", "fp8", 0.6, func(b *models.Build) { b.Quantize = kernels.F8E4M3 })
	}
	if w.onGPU() && len(w.options.Backend.Graphs.Sizes) > 0 {
		v := w
		v.graphsOff = true
		out = append(out, variant{Change{"cudagraph.mode", quote(w.options.Backend.Graphs.Mode), `"none"`,
			"every kernel of a step is launched by itself: slower where batches are small", 0.3}, v})
	}
	if !w.in.Model.Source.Build.Rebuild {
		out = w.addBuild(out, "memory.kvRebuild", "false", "true", 0.4, func(b *models.Build) { b.Rebuild = true })
	}
	if w.onGPU() {
		out = append(out, w.parallelVariants()...)
	}
	return out
}

// mostRanks is the largest number of devices that is suggested.
const mostRanks = 8

// parallelVariants returns the variants with more ranks, the fewest first, and for a number of
// devices a larger tensor parallel size before a larger pipeline.
func (w resolved) parallelVariants() []variant {
	var out []variant
	for n := ranks(w.in.Model.Source.Build) + 1; n <= mostRanks; n++ {
		out = append(out, w.parallelForms(n)...)
	}
	return out
}

// parallelForms returns the variants with n ranks that differ from w in one field.
func (w resolved) parallelForms(n int) []variant {
	var out []variant
	b := w.in.Model.Source.Build
	tensor, pipe := max(1, b.Shard.World), max(1, b.Pipe.World)
	far := 1 + float64(n)/100
	if n%pipe == 0 {
		out = w.addBuild(out, "parallel.tensor", fmt.Sprint(tensor), fmt.Sprint(n/pipe), far, func(b *models.Build) { b.Shard = backend.Shard{World: n / pipe} })
	}
	if n%tensor == 0 {
		out = w.addBuild(out, "parallel.pipeline", fmt.Sprint(pipe), fmt.Sprint(n/tensor), far+0.005, func(b *models.Build) { b.Pipe = backend.Shard{World: n / tensor} })
	}
	return out
}

// goalVariants returns variants with the goal's numbers in place of smaller ones of the profile.
func (w resolved) goalVariants() []variant {
	var out []variant
	o := w.options
	if n := w.goal.tokens; o.MaxModelLen > 0 && n > o.MaxModelLen && n <= w.in.Model.Config.MaxPositionEmbeddings {
		v := w
		v.options.MaxModelLen = n
		out = append(out, variant{Change{"maxModelLen", fmt.Sprint(o.MaxModelLen), fmt.Sprint(n),
			"requests may be longer, and take the memory of several", distance(float64(o.MaxModelLen), float64(n))}, v})
	}
	if n := w.goal.seqs; n > o.MaxNumSeqs && n <= o.MaxNumBatchedTokens {
		v := w
		v.options.MaxNumSeqs = n
		out = append(out, variant{Change{"scheduler.maxNumSeqs", fmt.Sprint(o.MaxNumSeqs), fmt.Sprint(n),
			"each running request gets its tokens later", distance(float64(o.MaxNumSeqs), float64(n))}, v})
	}
	return out
}

func (w resolved) dtypes() []variant {
	var out []variant
	old := w.options.KVFormat
	for _, f := range []kernels.Format{kernels.BF16, kernels.F16, kernels.F8E4M3} {
		if f.Bytes(1) >= old.Bytes(1) || !slices.Contains(w.layout.KVFormats(), f) {
			continue
		}
		v := w
		v.options.KVFormat = f
		cost := fmt.Sprintf("keys and values keep %d bits of %d", 8*f.Bytes(1), 8*old.Bytes(1))
		if f == kernels.F8E4M3 {
			cost += ": about one digit of precision, half the bytes"
		}
		out = append(out, variant{Change{"memory.kvCacheDtype", quote(w.in.Profile.Memory.KVCacheDtype), quote(word(f)), cost, 0.5}, v})
	}
	return out
}

// addBuild appends the variant with another build of the model, if the family supports it and it
// makes a difference.
func (w resolved) addBuild(out []variant, path, old, new string, far float64, how func(*models.Build)) []variant {
	b := w.in.Model.Source.Build
	how(&b)
	m, err := w.in.Model.With(b)
	if err != nil {
		return out
	}
	v := w
	v.in.Model = m
	if v, err = v.withStages(); err != nil {
		return out
	}
	less := w.weightBytes() - v.weightBytes()
	var cost string
	switch path {
	case "quantization":
		if !converts(m) {
			return out
		}
		cost = fmt.Sprintf("linear layers rounded to 8 bits while they load: weights −%s", Size(less))
		old, new = quote(old), quote(new)
	case "memory.kvRebuild":
		if ownPages(w, m) == ownPages(w, w.in.Model) {
			return out
		}
		cost = "keys are made from values in every step: more arithmetic, slightly other rounding"
	case "parallel.tensor":
		cost = fmt.Sprintf("%d GPUs like this one, each with −%s of weights, and an exchange in every layer", ranks(b), Size(less))
	case "parallel.pipeline":
		cost = fmt.Sprintf("%d GPUs like this one, each with −%s of weights, and a token passes through all of them", ranks(b), Size(less))
	}
	return append(out, variant{Change{path, old, new, cost, far}, v})
}

// weightBytes returns the bytes of the packed weights on the device.
func (w resolved) weightBytes() int64 {
	var n int64
	for _, s := range w.in.Model.Family.Weights() {
		p, err := w.layout.Weight(s)
		if err != nil {
			return 0
		}
		n += p.Bytes
	}
	return n
}

// moreDevices is how many larger devices are suggested. Of devices whose memory differs by at
// most a fiftieth, only one is.
const (
	moreDevices = 2
	alike       = 50
)

// byDevice returns the next larger devices of the catalogue that fit, of the same kind and
// supported by the backend.
func byDevice(w resolved, _ *shortError) []Change {
	list, err := devices.List()
	if err != nil || w.in.Facts.TotalBytes <= 0 {
		return nil
	}
	kind := devices.CPU
	if w.onGPU() {
		kind = devices.GPU
	}
	slices.SortStableFunc(list, func(a, b devices.Device) int { return int((a.TotalBytes - b.TotalBytes) >> 20) })
	var out []Change
	last := w.in.Facts.TotalBytes
	for _, d := range list {
		if d.Kind != kind || d.PlanOnly != "" || d.TotalBytes <= last+last/alike {
			continue
		}
		v := w
		v.host = d.Facts(w.in.Opener.Name())
		v.in.Facts = share(v.host, hostRanks(w.in), 0)
		if v, err = v.withLayout(); err != nil || !v.fits() {
			continue
		}
		last = d.TotalBytes
		cost := fmt.Sprintf("another machine, with %s", Size(d.TotalBytes))
		if out = append(out, Change{"--gpu", w.in.Facts.Device, d.Name, cost, 2 + float64(len(out))}); len(out) == moreDevices {
			break
		}
	}
	return out
}
