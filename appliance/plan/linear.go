package plan

import (
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// linear returns the library that the profile sets for matrix products on backend cuda; "": its own
// kernels, or auto.
func linear(p *schema.Profile) string {
	if p.CUDA == nil || p.CUDA.Linear != backend.CUBLASLt {
		return ""
	}
	return p.CUDA.Linear
}

// chooseLinear decides cuda.linear "auto" by the facts of the machine: products are the library's
// where it is there and would multiply a weight. Otherwise it sets ownLinear to the reason.
func (w *resolved) chooseLinear() {
	p, f := w.in.Profile, w.in.Facts
	if w.in.Opener.Name() != "cuda" || p.CUDA != nil && p.CUDA.Linear != "auto" {
		return
	}
	w.options.Backend.Linear, w.ownLinear = "", ""
	s := w.options.Backend
	s.Linear = backend.CUBLASLt
	l, err := w.in.Opener.Layout(f, s)
	if err != nil || !w.multiplies(l) {
		return // no product would be the library's
	}
	switch {
	case f.NoCUBLASLt != "":
		w.ownLinear = "the cuBLASLt of this machine cannot be used"
	case f.CUBLASLt == "" && f.Measured:
		w.ownLinear = "this machine has no cuBLASLt"
	case f.CUBLASLt == "":
		w.ownLinear = "no cuBLASLt is assumed; --gpu NAME+cublaslt=13.0 assumes one"
	case w.partBlocks(l):
		w.ownLinear = "cuBLASLt takes scales of blocks for multiples of 4 rows; make scheduler.maxNumBatchedTokens and maxNumSeqs such multiples"
	default:
		w.options.Backend.Linear = backend.CUBLASLt
	}
}

// multiplies reports whether the library multiplies a weight in layout l.
func (w resolved) multiplies(l backend.Layout) bool {
	for _, s := range w.in.Model.Family.Weights() {
		if byLibrary(l, s) {
			return true
		}
	}
	return false
}

// byLibrary reports whether the library multiplies weight s in layout l.
func byLibrary(l backend.Layout, s backend.WeightSpec) bool {
	packed, err := l.Weight(s)
	return err == nil && strings.HasSuffix(packed.Kernel, "_"+backend.CUBLASLt)
}

// partBlocks reports whether the library would multiply weights with scales of blocks in steps whose
// rows are no multiple of 4, which it does not.
func (w resolved) partBlocks(l backend.Layout) bool {
	if w.options.MaxNumBatchedTokens%4 == 0 && w.options.MaxNumSeqs%4 == 0 {
		return false
	}
	for _, s := range w.in.Model.Family.Weights() {
		if s.Stored() == kernels.F8E4M3 && s.Scaling == backend.PerBlock && byLibrary(l, s) {
			return true
		}
	}
	return false
}

// checkLinear refuses a library that would compute no product.
func (w resolved) checkLinear() error {
	p, name := w.in.Profile, w.in.Opener.Name()
	switch {
	case linear(p) == "":
		return nil
	case name != "cuda":
		return p.Reject("cuda.linear", "backend %s has no products by %s; leave the field out, or take backend cuda", name, linear(p))
	case w.multiplies(w.layout):
		return nil
	}
	return p.Reject("cuda.linear", "%s has no dense weights that %s would multiply, which are bf16 and f16, and with fp8 activations on compute capability 9.0 fp8; leave the field out", w.in.Model.Source.Name, linear(p))
}
