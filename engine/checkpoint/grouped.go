package checkpoint

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"vapp.dev/kernels"
	"vapp.dev/kernels/ref"
)

// joined is a weight of which codes, scales and zero points are stored apart. ReadRows returns
// blocks of 32 inputs, each with its group's scale and zero point, or of 16 inputs for NVFP4.
type joined struct {
	grouping             Grouping
	codes, zeros, scales TensorInfo // zeros without a name: the middle code
	matrix               TensorInfo // the scale of an NVFP4 matrix
	// order has the inputs in the order of their groups, if the checkpoint stores them in another.
	order []int32
}

// Names of the tensors of a module in the dialects of Grouping.
var (
	gptqNames       = groupedNames{codes: ".qweight", zeros: ".qzeros", scales: ".scales", order: ".g_idx"}
	floatNames      = groupedNames{codes: ".weight_packed", scales: ".weight_scale", matrix: ".weight_global_scale", input: ".input_global_scale"}
	modelOptNames   = groupedNames{codes: ".weight", scales: ".weight_scale", matrix: ".weight_scale_2", input: ".input_scale"}
	compressedNames = groupedNames{codes: ".weight_packed", zeros: ".weight_zero_point", scales: ".weight_scale", order: ".weight_g_idx", shape: ".weight_shape"}
)

// groupedNames has the ends of the names of a module's tensors. input ends the scale of activations, which
// stay in float.
type groupedNames struct{ codes, zeros, scales, order, shape, matrix, input string }

// OrderSuffix ends the name of the tensor that Open adds for a joined weight of Grouping.Ordered:
// its inputs, an F32 each, in the order in which the weight has them.
const OrderSuffix = ".order"

// GlobalScaleSuffix ends the name of the tensor that Open adds for a weight of NVFP4: the F32 that the
// numbers of its blocks are multiplied with. compressed-tensors stores its reciprocal.
const GlobalScaleSuffix = "_global_scale"

// join replaces the tensors of weights in groups by one for each module. It does nothing
// for a quantization_config that is refused or of another dialect: package models says so.
func (c *Checkpoint) join() error {
	g, ok, err := GroupingOf(c.cfg.QuantizationConfig)
	if !ok || err != nil {
		return nil
	}
	names := gptqNames
	switch {
	case g.Dialect == ModelOpt:
		names = modelOptNames
	case g.Float:
		names = floatNames
	case g.Dialect == Compressed:
		names = compressedNames
	}
	list, gone := c.tensors, map[string]bool{}
	c.tensors = make([]TensorInfo, 0, len(list))
	for _, t := range list {
		module, is := strings.CutSuffix(t.Name, names.codes)
		if !is || g.Dialect == ModelOpt && t.Format != kernels.U8 { // a weight that is not quantized has the name of codes
			c.tensors = append(c.tensors, t)
			continue
		}
		for _, suffix := range []string{names.zeros, names.scales, names.order, names.shape, names.matrix, names.input} {
			gone[module+suffix] = suffix != ""
		}
		weight, err := c.joinModule(g, names, module, list)
		if err != nil {
			return err
		}
		c.tensors = append(c.tensors, weight...)
	}
	c.tensors = slices.DeleteFunc(c.tensors, func(t TensorInfo) bool { return gone[t.Name] && t.joined == nil })
	c.byName = make(map[string]int, len(c.tensors))
	for i, t := range c.tensors {
		if at, twice := c.byName[t.Name]; twice {
			return fault(t.File, t.Name, "is stored as codes in groups and as a weight (in %s)", c.tensors[at].File)
		}
		c.byName[t.Name] = i
	}
	return nil
}

// joinModule returns the weight of a module, and its order if the grouping has one. list has the
// tensors as stored, at c.byName.
func (c *Checkpoint) joinModule(g Grouping, names groupedNames, module string, list []TensorInfo) ([]TensorInfo, error) {
	j := &joined{grouping: g}
	find := func(suffix string) (TensorInfo, error) {
		i, ok := c.byName[module+suffix]
		if !ok {
			return TensorInfo{}, fault(c.path, module+suffix, "is not in the checkpoint, which has %s%s", module, names.codes)
		}
		return list[i], nil
	}
	var err error
	if j.codes, err = find(names.codes); err == nil {
		j.scales, err = find(names.scales)
	}
	if err == nil && g.Float {
		j.matrix, err = find(names.matrix)
	}
	if err == nil && !g.NoZeros {
		j.zeros, err = find(names.zeros)
	}
	if _, has := c.byName[module+names.zeros]; has && g.NoZeros && names.zeros != "" && err == nil {
		err = fault(c.path, module+names.zeros, "is in the checkpoint, whose quantization_config says symmetric")
	}
	if err != nil {
		return nil, err
	}
	out, in, err := j.shape()
	if err != nil {
		return nil, err
	}
	if err := j.check(out, in); err != nil {
		return nil, err
	}
	w := TensorInfo{Name: module + ".weight", Shape: []int64{out, in}, Format: g.Format(), File: j.codes.File, Offset: j.codes.Offset, joined: j}
	w.Bytes = w.Format.Bytes(out * in)
	if g.Float {
		global := TensorInfo{Name: w.Name + GlobalScaleSuffix, Format: kernels.F32, File: j.matrix.File, Offset: j.matrix.Offset, Bytes: 4, joined: j}
		return []TensorInfo{w, global}, nil
	}
	if !g.Ordered {
		return []TensorInfo{w}, nil
	}
	index, err := find(names.order)
	if err != nil {
		return nil, err
	}
	if err := c.readOrder(j, index, in); err != nil {
		return nil, err
	}
	order := TensorInfo{Name: w.Name + OrderSuffix, Shape: []int64{in}, Format: kernels.F32, File: index.File, Offset: index.Offset, Bytes: 4 * in, joined: j}
	return []TensorInfo{w, order}, nil
}

// shape returns the outputs and inputs of the weight, from the shape of its codes.
func (j *joined) shape() (out, in int64, err error) {
	if j.grouping.Float {
		return j.floatShape()
	}
	t, bits := j.codes, int64(j.grouping.Bits)
	if t.Format != kernels.I32 || len(t.Shape) != 2 {
		return 0, 0, fault(t.File, t.Name, "has shape %v of %v; packed codes are a matrix of i32", t.Shape, t.Format)
	}
	switch j.grouping.Dialect {
	case GPTQ:
		out, in = t.Shape[1], t.Shape[0]*32/bits
		if t.Shape[0]*32%bits != 0 {
			return 0, 0, fault(t.File, t.Name, "has shape %v, no whole number of codes of %d bits", t.Shape, bits)
		}
	case AWQ:
		out, in = t.Shape[1]*8, t.Shape[0]
	default:
		out, in = t.Shape[0], t.Shape[1]*8
	}
	size := int64(j.grouping.Size)
	if size == 0 {
		size = in
	}
	if in%groupElems != 0 || in%size != 0 {
		return 0, 0, fault(t.File, t.Name, "has rows of %d inputs, which are no whole groups of %d; rows are read in whole groups of a multiple of %d", in, size, groupElems)
	}
	if j.grouping.Dialect == GPTQ && out*bits%32 != 0 && j.zeros.Name != "" {
		return 0, 0, fault(t.File, t.Name, "has %d outputs, whose zero points do not fill words of 32 bits", out)
	}
	return out, in, nil
}

// groups returns the number of groups of a row.
func (j *joined) groups(in int64) int64 {
	if j.grouping.Size == 0 {
		return 1
	}
	return in / int64(j.grouping.Size)
}

// check compares shapes and formats of scales and zero points with those of the weight.
func (j *joined) check(out, in int64) error {
	if j.grouping.Float {
		return j.checkFloat(out, in)
	}
	groups, bits := j.groups(in), int64(j.grouping.Bits)
	scales, zeros := []int64{groups, out}, []int64{groups, out * bits / 32}
	if j.grouping.Dialect == Compressed {
		scales, zeros = []int64{out, groups}, []int64{(out + 7) / 8, groups}
	}
	t := j.scales
	if !slices.Equal(t.Shape, scales) {
		return fault(t.File, t.Name, "has shape %v instead of %v", t.Shape, scales)
	}
	if t.Format != kernels.F16 && (t.Format != kernels.BF16 || bits == 8) {
		read := "f16 and bf16 are read"
		if bits == 8 {
			read = "f16 are read with codes of 8 bits"
		}
		return fault(t.File, t.Name, "is stored as %v; scales in %s", t.Format, read)
	}
	t = j.zeros
	if t.Name == "" || j.bytesOfZeros() && slices.Equal(t.Shape, scales) {
		return nil
	}
	if t.Format != kernels.I32 || !slices.Equal(t.Shape, zeros) {
		return fault(t.File, t.Name, "has shape %v of %v instead of %v of i32", t.Shape, t.Format, zeros)
	}
	return nil
}

// bytesOfZeros reports whether zero points are stored as int8, one for each scale.
func (j *joined) bytesOfZeros() bool {
	return j.grouping.Dialect == Compressed && j.zeros.Format == kernels.I8
}

// readOrder sets j.order from the group of each input.
func (c *Checkpoint) readOrder(j *joined, index TensorInfo, in int64) error {
	if index.Format != kernels.I32 || !slices.Equal(index.Shape, []int64{in}) {
		return fault(index.File, index.Name, "has shape %v of %v instead of [%d] of i32", index.Shape, index.Format, in)
	}
	b := make([]byte, 4*in)
	if err := c.files[index.File].readAt(b, index.Offset); err != nil {
		return err
	}
	groups := j.groups(in)
	size := in / groups
	count := make([]int64, groups)
	j.order = make([]int32, in)
	for i := range in {
		g := int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		if g < 0 || g >= groups || count[g] == size {
			return fault(index.File, index.Name, "puts input %d in group %d; each of %d groups has %d inputs", i, g, groups, size)
		}
		j.order[g*size+count[g]] = int32(i)
		count[g]++
	}
	return nil
}

// readJoined is ReadRows for a joined tensor.
func (c *Checkpoint) readJoined(t TensorInfo, row0, rows int, dst []byte) error {
	j := t.joined
	if strings.HasSuffix(t.Name, OrderSuffix) {
		for i, from := range j.order {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(from)))
		}
		return nil
	}
	if strings.HasSuffix(t.Name, GlobalScaleSuffix) {
		return c.readGlobalScale(j, dst)
	}
	if j.grouping.Float {
		return c.readFloat(t, row0, rows, dst)
	}
	r := joinedReader{joined: j, out: t.Shape[0], in: t.Shape[1], row0: int64(row0), rows: rows, dst: dst, heads: make([]uint32, rows), codes: make([][groupElems]byte, rows)}
	for _, p := range []struct {
		t  TensorInfo
		to *[]byte
	}{{j.codes, &r.packed}, {j.scales, &r.scales}, {j.zeros, &r.zeros}} {
		b, err := c.bytesOf(p.t)
		if err != nil {
			return err
		}
		*p.to = b
	}
	return catchFault(j.codes.File, r.read)
}

// bytesOf returns the mapped bytes of a tensor that a joined one replaces; nil for one without a name.
func (c *Checkpoint) bytesOf(t TensorInfo) ([]byte, error) {
	if t.Name == "" {
		return nil, nil
	}
	f := c.files[t.File]
	if f == nil {
		return nil, fault(t.File, t.Name, "is closed")
	}
	return f.data[t.Offset : t.Offset+t.Bytes], nil
}

// releaseJoined is Release for a joined tensor. The order of its inputs has no pages, and its global
// scale is released with it.
func (c *Checkpoint) releaseJoined(t TensorInfo) error {
	if strings.HasSuffix(t.Name, OrderSuffix) || strings.HasSuffix(t.Name, GlobalScaleSuffix) {
		return nil
	}
	for _, one := range []TensorInfo{t.joined.codes, t.joined.scales, t.joined.zeros, t.joined.matrix} {
		b, err := c.bytesOf(one)
		if err == nil && len(b) > 0 {
			err = drop(b)
		}
		if err != nil {
			return failed(c.path, one.Name, err)
		}
	}
	return nil
}

// joinedReader reads rows of a joined weight from the mapped bytes of its tensors.
type joinedReader struct {
	*joined
	packed, scales, zeros []byte
	out, in, row0         int64
	rows                  int
	dst                   []byte
	heads                 []uint32           // of the rows in the current group: I4's head, or Q8_0's scale
	codes                 [][groupElems]byte // of the rows in the current block
}

func (r *joinedReader) read() error {
	groups := r.groups(r.in)
	perGroup := r.in / groups / groupElems
	_, block := r.grouping.Format().Block()
	for b := range r.in / groupElems {
		if b%perGroup == 0 {
			if err := r.readHeads(b / perGroup); err != nil {
				return err
			}
		}
		r.readCodes(b)
		for i := range r.rows {
			at := (int64(i)*(r.in/groupElems) + b) * int64(block)
			r.store(r.dst[at:at+int64(block)], i)
		}
	}
	return nil
}

// store writes the current block of a row.
func (r *joinedReader) store(dst []byte, row int) {
	q := &r.codes[row]
	if r.grouping.Bits == 8 {
		binary.LittleEndian.PutUint16(dst, uint16(r.heads[row]))
		for i, code := range q {
			dst[2+i] = code ^ 0x80
		}
		return
	}
	binary.LittleEndian.PutUint32(dst, r.heads[row])
	for i := range 16 {
		dst[4+i] = q[i] | q[i+16]<<4
	}
}

// readHeads reads the scales and zero points of group g of all rows.
func (r *joinedReader) readHeads(g int64) error {
	le := binary.LittleEndian
	for i := range r.heads {
		o := r.row0 + int64(i)
		at := g*r.out + o
		if r.grouping.Dialect == Compressed {
			at = o*r.groups(r.in) + g
		}
		half, zero := le.Uint16(r.scales[2*at:]), r.zero(g, o, at)
		scale := ref.HalfToFloat(half)
		if r.joined.scales.Format == kernels.BF16 {
			scale = ref.BFloatToFloat(half)
		}
		if scale-scale != 0 {
			return fault(r.joined.scales.File, r.joined.scales.Name, "has a NaN or an infinity: the checkpoint is damaged")
		}
		if r.grouping.Bits == 8 {
			if zero != 128 {
				return fault(r.joined.zeros.File, r.joined.zeros.Name, "has a zero point of %d; codes of 8 bits are read with 128 (sym: true)", zero)
			}
			r.heads[i] = uint32(half)
			continue
		}
		r.heads[i] = math.Float32bits(scale) | zero
	}
	return nil
}

// zero returns the zero point of group g of output o; at is the index of their scale.
func (r *joinedReader) zero(g, o, at int64) uint32 {
	bits := int64(r.grouping.Bits)
	switch {
	case len(r.zeros) == 0:
		return 1 << (bits - 1)
	case r.bytesOfZeros():
		return uint32(r.zeros[at]+8) & 15
	case r.grouping.Dialect == Compressed:
		return field(r.zeros, (o/8*r.groups(r.in)+g)*32+o%8*4, 4)
	case r.grouping.Dialect == AWQ:
		return field(r.zeros, (g*r.out+o/8*8)*4+awqBit(o), 4)
	}
	zero := field(r.zeros, (g*r.out+o)*bits, bits)
	if r.grouping.LessOne {
		zero++
	}
	return zero
}

// field returns up to eight bits of little-endian bytes, from bit `at` on.
func field(b []byte, at, bits int64) uint32 {
	v := uint32(b[at/8])
	if at%8+bits > 8 {
		v |= uint32(b[at/8+1]) << 8
	}
	return v >> (at % 8) & (1<<bits - 1)
}

// awqBit returns where the code of output o begins in its word: eight outputs are stored in the
// order 0, 2, 4, 6, 1, 3, 5, 7.
func awqBit(o int64) int64 { return (o%2*4 + o%8/2) * 4 }

// readCodes reads block b of all rows.
func (r *joinedReader) readCodes(b int64) {
	switch {
	case r.grouping.Dialect == AWQ:
		r.awqCodes(b)
	case r.order != nil:
		for k := range int64(groupElems) {
			from := int64(r.order[b*groupElems+k])
			for i := range r.codes {
				r.codes[i][k] = byte(r.code(r.row0+int64(i), from))
			}
		}
	case r.grouping.Dialect == GPTQ:
		r.gptqCodes(b)
	default:
		for i := range r.codes {
			from := ((r.row0+int64(i))*r.in + b*groupElems) / 2
			for k, two := range r.packed[from : from+groupElems/2] {
				r.codes[i][2*k], r.codes[i][2*k+1] = two&15, two>>4
			}
		}
	}
}

// code returns the code of output o and input k, of GPTQ or compressed-tensors.
func (r *joinedReader) code(o, k int64) uint32 {
	bits := int64(r.grouping.Bits)
	if r.grouping.Dialect == Compressed {
		return field(r.packed, (o*r.in+k)*4, 4)
	}
	at := k * bits // in the column of words
	word := func(w int64) uint64 { return uint64(binary.LittleEndian.Uint32(r.packed[(w*r.out+o)*4:])) }
	v := word(at / 32)
	if at%32+bits > 32 {
		v |= word(at/32+1) << 32
	}
	return uint32(v>>(at%32)) & (1<<bits - 1)
}

// gptqCodes reads 32 inputs, which are as many words of a column as a code has bits.
func (r *joinedReader) gptqCodes(b int64) {
	bits := int64(r.grouping.Bits)
	var words [8][]byte
	for w := range bits {
		words[w] = r.packed[((b*bits+w)*r.out+r.row0)*4:]
	}
	mask := uint64(1)<<bits - 1
	for i := range r.codes {
		var have int64
		var v uint64
		next := 0
		for k := range r.codes[i] {
			if have < bits {
				v |= uint64(binary.LittleEndian.Uint32(words[next][4*i:])) << have
				have, next = have+32, next+1
			}
			r.codes[i][k] = byte(v & mask)
			v, have = v>>bits, have-bits
		}
	}
}

// awqCodes reads 32 inputs of words of eight outputs.
func (r *joinedReader) awqCodes(b int64) {
	for k := range int64(groupElems) {
		line := r.packed[(b*groupElems+k)*r.out/2:]
		for i := 0; i < r.rows; {
			o := r.row0 + int64(i)
			word := binary.LittleEndian.Uint32(line[o/8*4:])
			for ; i < r.rows && (r.row0+int64(i))/8 == o/8; i++ {
				r.codes[i][k] = byte(word >> awqBit(r.row0+int64(i)) & 15)
			}
		}
	}
}
