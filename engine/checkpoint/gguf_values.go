package checkpoint

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// integer reads a whole-number metadata value.
func (g *gguf) integer(key string) (n int64, ok bool, err error) {
	v, ok := g.values[key]
	if !ok {
		return 0, false, nil
	}
	n, ok = v.int()
	if !ok {
		return 0, false, fault(g.path, key, "is no whole number but %v", v.kind)
	}
	return n, true, nil
}

// int returns a whole number that fits an int64.
func (v ggufValue) int() (int64, bool) {
	le := binary.LittleEndian
	switch v.kind {
	case kindU8:
		return int64(v.raw[0]), true
	case kindI8:
		return int64(int8(v.raw[0])), true
	case kindU16:
		return int64(le.Uint16(v.raw)), true
	case kindI16:
		return int64(int16(le.Uint16(v.raw))), true
	case kindU32:
		return int64(le.Uint32(v.raw)), true
	case kindI32:
		return int64(int32(le.Uint32(v.raw))), true
	case kindI64:
		return int64(le.Uint64(v.raw)), true
	case kindU64:
		n := le.Uint64(v.raw)
		if n > math.MaxInt64 {
			n = math.MaxInt64 // out of every range
		}
		return int64(n), true
	}
	return 0, false
}

func (v ggufValue) float() (float64, bool) {
	switch v.kind {
	case kindF32:
		// Parse the shortest decimal of the binary32, so that 1e-05 stays 1e-05.
		f := math.Float32frombits(binary.LittleEndian.Uint32(v.raw))
		x, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
		return x, err == nil
	case kindF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw)), true
	}
	return 0, false
}

// strings decodes an array of strings; each must be UTF-8.
func (g *gguf) strings(key string) ([]string, error) {
	v, ok := g.values[key]
	if !ok || v.kind != kindArray || v.elem != kindString {
		return nil, fault(g.path, key, "is missing or no array of strings")
	}
	out := make([]string, v.n)
	all := string(v.raw) // one allocation, shared by all strings
	at := 0
	for i := range out {
		n := int(binary.LittleEndian.Uint64(v.raw[at:]))
		out[i] = all[at+8 : at+8+n]
		at += 8 + n
		if !utf8.ValidString(out[i]) {
			return nil, fault(g.path, key, "element %d is not UTF-8", i)
		}
	}
	return out, nil
}

// next returns the string of an array at byte *at, without copying, and advances *at.
func (v ggufValue) next(at *int) []byte {
	n := int(binary.LittleEndian.Uint64(v.raw[*at:]))
	text := v.raw[*at+8 : *at+8+n]
	*at += 8 + n
	return text
}

// at returns string i of an array, "" beyond its end.
func (v ggufValue) at(i int) string {
	for j, at := 0, 0; j < v.n; j++ {
		n := int(binary.LittleEndian.Uint64(v.raw[at:]))
		if j == i {
			return string(v.raw[at+8 : at+8+n])
		}
		at += 8 + n
	}
	return ""
}

// element reads element i of an array of whole numbers.
func (v ggufValue) element(i int) (int64, bool) {
	size := v.elem.size()
	return ggufValue{kind: v.elem, raw: v.raw[i*size : (i+1)*size]}.int()
}

// scalars returns the metadata without its arrays.
func (g *gguf) scalars() map[string]any {
	m := map[string]any{}
	for key, v := range g.values {
		if !strings.Contains(key, ".") {
			continue
		}
		if n, ok := v.int(); ok {
			m[key] = n
		} else if x, ok := v.float(); ok && finite(x) {
			m[key] = x
		} else if v.kind == kindBool {
			m[key] = v.raw[0] != 0
		} else if v.kind == kindString && len(v.raw) <= maxGGUFKey && utf8.Valid(v.raw) {
			m[key] = string(v.raw)
		}
	}
	return m
}

// counts reads n whole numbers in [lo, hi]; one number stands for n.
func (f *ggufFields) counts(key string, lo, hi int64, n int) []int {
	v, ok := f.g.values[key]
	if !ok || v.kind != kindArray {
		return slices.Repeat([]int{f.count(key, lo, hi, lo-1)}, n)
	}
	if v.elem.size() == 0 || v.n != n {
		f.fail(key, "is no list of %d numbers, one a layer", n)
		return nil
	}
	out := make([]int, n)
	for i := range out {
		x, ok := v.element(i)
		if !ok || x < lo || x > hi {
			f.fail(key, "element %d is %d, allowed are %d to %d", i, x, lo, hi)
			return nil
		}
		out[i] = int(x)
	}
	return out
}

// sameCount reads a number as count does; a list of n numbers, one a layer, must have the same throughout.
func (f *ggufFields) sameCount(key string, lo, hi, absent int64, n int) int {
	if v, ok := f.g.values[key]; !ok || v.kind != kindArray || n < 1 {
		return f.count(key, lo, hi, absent)
	}
	list := f.counts(key, lo, hi, n)
	for i, x := range list {
		if x != list[0] {
			f.fail(key, "is %d in layer %d and %d in layer 0; layers that differ are not read", x, i, list[0])
		}
	}
	if f.err != nil {
		return 0
	}
	return list[0]
}

// ggufFields reads typed values as fields does for JSON, and keeps the first error.
type ggufFields struct {
	g   *gguf
	err error
}

// fail keeps the first error. Of a split model it names the file that has the tensor, or the first file,
// which has the keys.
func (f *ggufFields) fail(key, format string, args ...any) {
	if f.err != nil {
		return
	}
	path := f.g.path
	if t, ok := f.g.tensor(key); ok {
		path = t.File
	}
	f.err = fault(path, key, format, args...)
}

// count reads a whole number in [lo, hi]; absent below lo makes it required.
func (f *ggufFields) count(key string, lo, hi, absent int64) int {
	n, ok, err := f.g.integer(key)
	switch {
	case err != nil:
		f.fail(key, "%s", err.(*Error).Msg)
	case !ok && absent < lo:
		f.fail(key, "is missing")
	case !ok:
		return int(absent)
	case n < lo || n > hi:
		f.fail(key, "is %d, allowed are %d to %d", n, lo, hi)
	default:
		return int(n)
	}
	return 0
}

// real reads a number in [lo, hi]; absent below lo makes it required.
func (f *ggufFields) real(key string, lo, hi, absent float64) float64 {
	v, ok := f.g.values[key]
	if !ok {
		if absent < lo {
			f.fail(key, "is missing")
		}
		return absent
	}
	x, ok := v.float()
	if !ok {
		f.fail(key, "is no number but %v", v.kind)
		return 0
	}
	if !(x >= lo && x <= hi) { // NaN fails too
		f.fail(key, "is %v, allowed are %v to %v", x, lo, hi)
		return 0
	}
	return x
}

func (f *ggufFields) text(key, absent string) string {
	v, ok := f.g.values[key]
	if !ok {
		return absent
	}
	if v.kind != kindString || len(v.raw) > maxTemplate || !utf8.Valid(v.raw) {
		f.fail(key, "is no UTF-8 string of at most %d bytes", maxTemplate)
		return ""
	}
	return string(v.raw)
}

func (f *ggufFields) flag(key string, absent bool) bool {
	v, ok := f.g.values[key]
	if !ok {
		return absent
	}
	if v.kind != kindBool || v.raw[0] > 1 {
		f.fail(key, "is not true or false")
		return false
	}
	return v.raw[0] == 1
}

// id reads a token id below vocab; -1 if the key is absent.
func (f *ggufFields) id(key string, vocab int) int {
	if _, ok := f.g.values[key]; !ok {
		return -1
	}
	return f.count(key, 0, int64(vocab)-1, 0)
}
