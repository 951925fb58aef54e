package models

import (
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine/checkpoint"
	"vapp.dev/kernels"
)

// MismatchError says where a checkpoint's tensors disagree with its config.
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
	return oneLine(fmt.Sprintf("%s: %d tensors disagree with the config: %s", e.Path, n, text))
}

// agree compares the checkpoint's tensors with those the config asks for. Those
// that f skips may be absent; a loader that reads them says so.
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

// differs says what is wrong with t where w was asked for, "" for nothing. A
// weight may be stored in another format of numbers, but not without the scales
// that one format has and the other lacks.
func mismatch(w, t checkpoint.TensorInfo, there bool) string {
	switch {
	case !there:
		return w.Name + " is missing"
	case isScale(w.Name) && t.Elements() == w.Elements() && !packed(w.Format):
		if !plain(t.Format) {
			return fmt.Sprintf("%s is stored as %v; scales are read from f32, f16 and bf16", t.Name, t.Format)
		}
		return "" // [], [1], [rows] and [rows, 1] are spellings of one shape
	case !slices.Equal(t.Shape, w.Shape):
		return fmt.Sprintf("%s has shape %v instead of %v", t.Name, t.Shape, w.Shape)
	case packed(w.Format) && t.Format != w.Format, packed(t.Format) && t.Format != w.Format:
		return fmt.Sprintf("%s is stored as %v instead of %v", t.Name, t.Format, w.Format)
	}
	return ""
}

// packed says of a format that it is not numbers by itself: bytes that belong
// together with other tensors, or 8-bit floats and their scales.
func packed(f kernels.Format) bool {
	switch f {
	case kernels.U8, kernels.I8, kernels.I64, kernels.I32, kernels.U32, kernels.F8E4M3, kernels.F8E5M2:
		return true
	}
	return false
}

// Suffixes of the tensor of the scales of an 8-bit float or int8: what multiplies it,
// in two spellings.
const (
	scaleInv = "_scale_inv"
	scale    = "_scale"
)

func isScale(name string) bool {
	return strings.HasSuffix(name, scaleInv) || strings.HasSuffix(name, scale)
}

// otherSpelling is the other name that a tensor of scales may have, "" for other
// tensors.
func otherSpelling(name string) string {
	if s, ok := strings.CutSuffix(name, scaleInv); ok {
		return s + scale
	}
	if s, ok := strings.CutSuffix(name, scale); ok {
		return s + scaleInv
	}
	return ""
}

// ignorable names tensors that checkpoints carry and nobody reads: a tied
// head's second copy, tables that are computed from the config, and the scales of
// activations and of K and V, which are not quantized by stored scales here: where
// activations are rounded to 8 bits, each row has a scale of its own.
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
