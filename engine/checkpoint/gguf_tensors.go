package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// readTensors reads the tensor list and checks that each tensor is inside the file, aligned, and
// does not overlap another.
func (g *gguf) readTensors(c *ggufCursor, count uint64) {
	align := int64(32)
	if n, ok, err := g.integer("general.alignment"); err != nil {
		c.err = err
	} else if ok {
		align = n
	}
	if align < 1 || align > 1<<20 || align&(align-1) != 0 {
		c.fail("general.alignment", "is %d, not a power of two up to 2^20", align)
	}
	seen := map[string]bool{}
	for i := uint64(0); i < count && c.err == nil; i++ {
		t := c.tensor(fmt.Sprintf("tensor %d", i), align)
		if c.err == nil && seen[t.Name] {
			c.fail(t.Name, "is in the file twice: "+damaged)
		}
		seen[t.Name] = true
		g.tensors = append(g.tensors, t)
	}
	if c.err != nil {
		return
	}
	base := (int64(c.pos) + align - 1) / align * align
	g.place(c, base, align)
}

// tensor reads one entry; Offset is relative to the data section.
func (c *ggufCursor) tensor(field string, align int64) TensorInfo {
	t := TensorInfo{Name: c.name(field), File: c.path}
	if c.err == nil {
		field = t.Name
	}
	dims := c.u32(field)
	if c.err == nil && (dims < 1 || dims > ggufDims) {
		c.fail(field, "has %d dimensions, allowed are 1 to %d", dims, ggufDims)
	}
	for i := uint32(0); i < dims && c.err == nil; i++ {
		d := c.u64(field)
		if d > maxElements {
			c.fail(field, "has a dimension of %d", d)
		}
		t.Shape = append(t.Shape, int64(d))
	}
	slices.Reverse(t.Shape) // GGUF lists the fastest dimension first
	kind := c.u32(field)
	offset := c.u64(field)
	if c.err != nil {
		return t
	}
	f, ok := ggufTypes[kind]
	if !ok {
		name := ggufTypeNames[kind]
		if name == "" {
			name = fmt.Sprintf("number %d", kind)
		}
		c.fail(field, "tensor type %s is not read (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ1_S to IQ4_XS, TQ1_0, TQ2_0 and MXFP4 are); take another quantization of the model", name)
		return t
	}
	size, wrong := measure(f, t.Shape)
	if wrong != "" {
		c.fail(field, "shape %v %s", t.Shape, wrong)
	}
	if offset > uint64(len(c.data)) {
		c.fail(field, "begins %d bytes into the data, the file has %d: %s", offset, len(c.data), damaged)
	} else if int64(offset)%align != 0 {
		c.fail(field, "offset %d is no multiple of the alignment %d: %s", offset, align, damaged)
	}
	t.Format, t.Bytes, t.Offset, t.swapped = f, size, int64(offset), kind == ggufMXFP4
	return t
}

// place makes offsets absolute and sorts the tensors. As in ggml, they must be contiguous except
// for padding.
func (g *gguf) place(c *ggufCursor, base, align int64) {
	slices.SortStableFunc(g.tensors, func(a, b TensorInfo) int {
		return int(min(max(a.Offset-b.Offset, -1), 1))
	})
	end := base
	for i := range g.tensors {
		t := &g.tensors[i]
		t.Offset += base
		switch {
		case t.Offset < end:
			c.fail(t.Name, "overlaps %s: %s", clip(g.tensors[i-1].Name), damaged)
		case t.Offset-end >= align:
			c.fail(t.Name, "begins %d bytes after the tensor before it ends, more than padding: %s", t.Offset-end, damaged)
		case t.Bytes > int64(len(c.data))-t.Offset:
			c.fail(t.Name, "ends at byte %d, the file has %d: %s", t.Offset+t.Bytes, len(c.data), damaged)
		}
		if c.err != nil {
			return
		}
		end = t.Offset + t.Bytes
	}
}

// huggingFaceName translates a GGUF tensor name; part is the name within the layer ("attn_q"), if
// it is a tensor of a layer.
func (a ggufArch) huggingFaceName(name string, layers int) (hf, part string, ok bool) {
	if to, ok := ggufTop[name]; ok {
		return to, "", true
	}
	n, rest, ok := layerOf(name)
	if !ok || n >= layers {
		return "", "", false
	}
	if to, ok := a.names[rest]; ok {
		return fmt.Sprintf("model.layers.%d.%s", n, to), "", true
	}
	part, kind, _ := strings.Cut(rest, ".")
	to, ok := a.names[part]
	if !ok {
		to, ok = ggufNames[part]
	}
	if part == "attn_qkv" && !ok {
		to, ok = "self_attn.qkv_proj", true // ggufArch.parts takes it apart
	}
	if !ok || kind != "weight" && kind != "bias" {
		return "", "", false
	}
	return fmt.Sprintf("model.layers.%d.%s.%s", n, to, kind), part, true
}

// loneExpert reports whether a tensor of a layer is a matrix of one expert: ffn_up.3.weight.
func loneExpert(name string) bool {
	_, rest, _ := layerOf(name)
	part, rest, _ := strings.Cut(rest, ".")
	number, rest, _ := strings.Cut(rest, ".")
	_, err := strconv.ParseUint(number, 10, 16)
	return err == nil && rest == "weight" && (part == "ffn_gate" || part == "ffn_up" || part == "ffn_down")
}

// layerOf returns the layer of a tensor and its name there.
func layerOf(name string) (layer int, rest string, ok bool) {
	rest, ok = strings.CutPrefix(name, "blk.")
	if !ok {
		return 0, "", false
	}
	number, rest, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || strconv.Itoa(n) != number {
		return 0, "", false
	}
	return n, rest, true
}
