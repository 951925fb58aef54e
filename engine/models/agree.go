package models

import (
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// MismatchError reports checkpoint tensors that disagree with the config.
type MismatchError struct {
	Path     string
	Problems []string
}

func (e *MismatchError) Error() string {
	const show = 3
	n := len(e.Problems)
	text := strings.Join(e.Problems[:min(n, show)], "; ")
	if n > show {
		text += fmt.Sprintf("; and %d more", n-show)
	}
	what := "tensors disagree"
	if n == 1 {
		what = "tensor disagrees"
	}
	return oneLine(fmt.Sprintf("%s: %d %s with the config: %s; fetch all files of one version of the model, or convert it again", e.Path, n, what, text))
}

// checkTensors compares the checkpoint's tensors with those that the config implies. Tensors that f
// skips may be absent; the loader fails if it needs one.
func checkTensors(c *checkpoint.Checkpoint, f family, want []checkpoint.TensorInfo) error {
	skip := f.skip
	if skip == nil {
		skip = func(string) bool { return false }
	}
	var bad []string
	known := map[string]bool{}
	for _, w := range want {
		t, ok := c.Tensor(w.Name)
		if !ok {
			t, ok = c.Tensor(otherSpelling(w.Name))
		}
		known[t.Name] = true
		if !ok && skip(w.Name) {
			continue
		}
		if wrong := mismatch(w, t, ok); wrong != "" {
			bad = append(bad, wrong)
		}
	}
	for _, t := range c.Tensors() {
		if !known[t.Name] && !ignorable(t.Name) && !skip(t.Name) {
			bad = append(bad, t.Name+" is not part of the model")
		}
	}
	if len(bad) > 0 {
		return &MismatchError{c.Path(), bad}
	}
	return nil
}

// mismatch describes how t differs from the wanted w, "" if it does not. A weight may be stored in
// another number format, but not in one that adds or lacks scales.
func mismatch(w, t checkpoint.TensorInfo, there bool) string {
	switch {
	case !there:
		return w.Name + " is missing"
	case isScale(w.Name) && t.Elements() == w.Elements() && !packed(w.Format):
		if !plain(t.Format) {
			return fmt.Sprintf("%s is stored as %v; scales are read from f32, f16 and bf16", t.Name, t.Format)
		}
		return "" // [], [1], [rows] and [rows, 1] are equivalent shapes
	case !slices.Equal(t.Shape, w.Shape):
		return fmt.Sprintf("%s has shape %v instead of %v", t.Name, t.Shape, w.Shape)
	case packed(w.Format) && t.Format != w.Format, packed(t.Format) && t.Format != w.Format:
		return fmt.Sprintf("%s is stored as %v instead of %v", t.Name, t.Format, w.Format)
	}
	return ""
}

// packed reports whether a format needs other tensors to be decoded: bytes of packed codes, 8-bit
// floats with scales, or NVFP4.
func packed(f kernels.Format) bool {
	switch f {
	case kernels.U8, kernels.I8, kernels.I64, kernels.I32, kernels.U32, kernels.F8E4M3, kernels.F8E5M2, kernels.NVFP4:
		return true
	}
	return false
}

// The two suffixes in use for the tensor of scales that an 8-bit float or int8 tensor is multiplied
// by.
const (
	scaleInv = "_scale_inv"
	scale    = "_scale"
)

func isScale(name string) bool {
	return strings.HasSuffix(name, scaleInv) || strings.HasSuffix(name, scale)
}

// otherSpelling returns the alternative name of a tensor of scales, "" for other tensors.
func otherSpelling(name string) string {
	if s, ok := strings.CutSuffix(name, scaleInv); ok {
		return s + scale
	}
	if s, ok := strings.CutSuffix(name, scale); ok {
		return s + scaleInv
	}
	return ""
}

// ignorable reports tensors that checkpoints contain but the engine does not read: a copy of a tied
// head, tables that are computed from the config, and stored scales of activations, K and V.
// Activations that are rounded to 8 bits get a dynamic scale for each row instead.
func ignorable(name string) bool {
	if name == "lm_head.weight" || name == "rope_freqs.weight" {
		return true
	}
	for _, suffix := range []string{
		".rotary_emb.inv_freq", ".input_scale", ".activation_scale", ".input_scale_ub", ".output_scale",
		".k_scale", ".v_scale", ".q_scale", ".kv_scale",
	} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
