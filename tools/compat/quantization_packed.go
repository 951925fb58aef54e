package compat

// integers describes packed weights.
type integers struct {
	bits, group int64 // group 0: one scale for each output
	zeros       bool  // zero points stay beside the scales
	ordered     bool  // inputs are reordered: an index and a permutation of them stay
}

func (q *quantization) readAWQ(o *object) {
	q.scheme, q.integers = packed, integers{bits: o.countOr("bits", 1, 64, o.countOr("w_bit", 1, 64, 4)), zeros: o.flag("zero_point", true)}
	if q.integers.bits != 4 {
		o.fail("bits", "is %d, AWQ has 4", q.integers.bits)
	}
	if v := o.text("version"); v != "" && v != "gemm" && v != "GEMM" {
		o.fail("version", "is %q, known here is gemm", clip(v))
	}
	key := "group_size"
	if _, ok := o.raw("q_group_size"); ok {
		key = "q_group_size"
	}
	q.readGroup(o, key)
}

func (q *quantization) readGPTQ(o *object) {
	q.scheme, q.integers = packed, integers{bits: o.countOr("bits", 1, 64, 4), zeros: !o.flag("sym", true), ordered: o.flag("desc_act", false)}
	if b := q.integers.bits; b != 4 && b != 8 {
		o.fail("bits", "is %d, allowed are 4 and 8", b)
	}
	q.readGroup(o, "group_size")
}

// readPacked reads a group of compressed-tensors with 4-bit integers.
func (q *quantization) readPacked(w *object) {
	q.scheme, q.integers = packed, integers{bits: 4, zeros: !w.flag("symmetric", true)}
	switch s := w.text("strategy"); s {
	case "group":
		q.readGroup(w, "group_size")
	case "channel":
	default:
		w.fail("strategy", "is %q: known here are group and channel", clip(s))
	}
}

// readGroup reads a group size; -1: one group for all inputs.
func (q *quantization) readGroup(o *object, key string) {
	n := o.countOr(key, -1, maxWidth, 128)
	if n == 0 || n > 0 && n < 8 {
		o.fail(key, "is %d, allowed are -1 and 8 to %d", n, maxWidth)
	}
	q.integers.group = max(0, n)
}

// packedMatrix allocates packed weights of n outputs and k inputs, for a number of experts. They are
// repacked after loading; what the kernel does not read is freed.
func (w *rank) packedMatrix(experts, n, k int64, shard string) {
	q := w.quant.integers
	groups := int64(1)
	if q.group > 0 {
		if w.tp > 1 && k%q.group != 0 {
			w.failField("parallel.tensor", "%d leaves %s with %d inputs, which groups of %d do not divide", w.tp, shard, k, q.group)
		}
		groups = ceilDiv(k, q.group)
	}
	weight := w.tensor(1, experts, n, ceilDiv(k*q.bits, 8))
	w.tensor(w.dtype, experts, groups, n)
	if q.zeros {
		w.tensor(1, experts, groups, ceilDiv(n*q.bits, 8))
	}
	if q.ordered {
		w.tensor(4, experts, k)
		w.tensor(4, experts, k)
	}
	w.again(weight)
	w.workspace()
}
