package checkpoint

import (
	"encoding/binary"
	"fmt"

	"vapp.dev/kernels"
)

// Limits of a GGUF header; the format itself allows 2^64 of everything.
const (
	ggufVersion = 3
	ggufOldest  = 2 // laid out as version 3
	maxGGUFKeys = 1 << 16
	maxGGUFKey  = 1<<16 - 1
	ggufDims    = 4
	ggufMXFP4   = 39 // MXFP4 blocks with a different byte order
)

// ggufKind is the type of a metadata value.
type ggufKind uint32

const (
	kindU8 ggufKind = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

var kindNames = [...]string{"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"}

func (k ggufKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("type %d", uint32(k))
}

// size returns the bytes of a number, 0 for strings and arrays.
func (k ggufKind) size() int {
	switch k {
	case kindU8, kindI8, kindBool:
		return 1
	case kindU16, kindI16:
		return 2
	case kindU32, kindI32, kindF32:
		return 4
	case kindU64, kindI64, kindF64:
		return 8
	}
	return 0
}

// ggufTypes are the tensor types that vapp reads, ggufTypeNames the other known types.
var ggufTypes = map[uint32]kernels.Format{
	0: kernels.F32, 1: kernels.F16, 2: kernels.Q4_0, 3: kernels.Q4_1, 8: kernels.Q8_0,
	6: kernels.Q5_0, 7: kernels.Q5_1, 10: kernels.Q2_K, 11: kernels.Q3_K, 12: kernels.Q4_K, 13: kernels.Q5_K, 14: kernels.Q6_K,
	16: kernels.IQ2_XXS, 17: kernels.IQ2_XS, 18: kernels.IQ3_XXS, 19: kernels.IQ1_S, 20: kernels.IQ4_NL, 21: kernels.IQ3_S,
	22: kernels.IQ2_S, 23: kernels.IQ4_XS, 26: kernels.I32, 29: kernels.IQ1_M, 30: kernels.BF16, 34: kernels.TQ1_0, 35: kernels.TQ2_0,
	ggufMXFP4: kernels.MXFP4,
}

var ggufTypeNames = map[uint32]string{
	9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 27: "I64", 28: "F64", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}

// ggufValue is one metadata value, as undecoded bytes of the file.
type ggufValue struct {
	kind ggufKind
	elem ggufKind // element type of an array
	n    int      // elements of an array
	raw  []byte   // number, string text, or array elements
}

// gguf is the header of a GGUF file. For a split model it has the metadata of the first file and the
// tensors of all.
type gguf struct {
	path    string
	values  map[string]ggufValue
	keys    []string // in file order
	tensors []TensorInfo
	data    map[string][]byte // the mapped files by path
	split   ggufSplit
}

// ggufCursor reads the header sequentially. It keeps the first error; later reads return zero.
type ggufCursor struct {
	path string
	data []byte
	pos  int
	err  error
}

func (c *ggufCursor) fail(field, format string, args ...any) {
	if c.err == nil {
		c.err = fault(c.path, field, format, args...)
	}
}

func (c *ggufCursor) left() uint64 { return uint64(len(c.data) - c.pos) }

// take returns the next n bytes.
func (c *ggufCursor) take(n uint64, field string) []byte {
	if c.err == nil && n > c.left() {
		c.fail(field, "needs %d bytes at byte %d, the file has %d more: %s", n, c.pos, c.left(), damaged)
	}
	if c.err != nil {
		return nil
	}
	b := c.data[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b
}

func (c *ggufCursor) u32(field string) uint32 {
	b := c.take(4, field)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

func (c *ggufCursor) u64(field string) uint64 {
	b := c.take(8, field)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// name reads a string and copies it to a Go string.
func (c *ggufCursor) name(field string) string {
	n := c.u64(field)
	if n > maxGGUFKey {
		c.fail(field, "has a name of %d bytes, more than the limit of %d", n, maxGGUFKey)
	}
	return string(c.take(n, field))
}

// value reads a metadata value of the given kind.
func (c *ggufCursor) value(key string) ggufValue {
	v := ggufValue{kind: ggufKind(c.u32(key))}
	switch {
	case c.err != nil:
	case v.kind == kindString:
		v.raw = c.take(c.u64(key), key)
	case v.kind == kindArray:
		c.array(key, &v)
	case v.kind.size() > 0:
		v.raw = c.take(uint64(v.kind.size()), key)
	default:
		c.fail(key, "has unknown value %v", v.kind)
	}
	return v
}

func (c *ggufCursor) array(key string, v *ggufValue) {
	v.elem = ggufKind(c.u32(key))
	n := c.u64(key)
	least := uint64(v.elem.size())
	if v.elem == kindString {
		least = 8
	}
	if c.err == nil && least == 0 {
		c.fail(key, "is an array of %v; arrays of numbers and strings are read", v.elem)
	}
	if c.err == nil && n > c.left()/least {
		c.fail(key, "has %d elements, more than the %d bytes left can hold: %s", n, c.left(), damaged)
	}
	if c.err != nil {
		return
	}
	v.n = int(n)
	if v.elem != kindString {
		v.raw = c.take(n*least, key)
		return
	}
	start := c.pos
	for i := uint64(0); i < n && c.err == nil; i++ {
		c.take(c.u64(key), key)
	}
	v.raw = c.data[start:c.pos:c.pos]
}

// parseGGUF reads the header of one GGUF file whose bytes are data. Tensors have the names of the file
// and are sorted by offset.
func parseGGUF(path string, data []byte) (*gguf, error) {
	c := &ggufCursor{path: path, data: data}
	if len(data) < 4 || string(c.take(4, "magic")) != "GGUF" {
		return nil, foreign(path, data)
	}
	version := c.u32("version")
	if version == ggufVersion<<24 || version == ggufOldest<<24 {
		return nil, fault(path, "version", "is big-endian; little-endian files are read, gguf_convert_endian.py of llama.cpp converts it")
	}
	if c.err == nil && version != ggufVersion && version != ggufOldest {
		return nil, fault(path, "version", "is %d, versions %d and %d are read; convert the model again with llama.cpp", version, ggufOldest, ggufVersion)
	}
	tensors, keys := c.u64("tensor_count"), c.u64("metadata_kv_count")
	if keys > maxGGUFKeys {
		c.fail("metadata_kv_count", "is %d, more than the limit of %d", keys, maxGGUFKeys)
	}
	if tensors > maxTensors {
		c.fail("tensor_count", "is %d, allowed are 1 to %d", tensors, maxTensors)
	}
	g := &gguf{path: path, values: map[string]ggufValue{}, data: map[string][]byte{path: data}}
	for i := uint64(0); i < keys && c.err == nil; i++ {
		g.readKey(c, i)
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := g.readSplit(); err != nil {
		return nil, err
	}
	if tensors == 0 && g.split.count < 2 {
		return nil, fault(path, "tensor_count", "is 0, allowed are 1 to %d", maxTensors)
	}
	g.readTensors(c, tensors)
	if c.err != nil {
		return nil, c.err
	}
	return g, nil
}

func (g *gguf) readKey(c *ggufCursor, i uint64) {
	key := c.name(fmt.Sprintf("metadata key %d", i))
	if c.err != nil {
		return
	}
	if _, twice := g.values[key]; twice {
		c.fail(key, "is in the metadata twice: "+damaged)
		return
	}
	v := c.value(key)
	if c.err == nil {
		g.values[key] = v
		g.keys = append(g.keys, key)
	}
}
