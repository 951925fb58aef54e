package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"vapp.dev/kernels"
)

// maxHeader is the maximum size of a safetensors header in bytes, the limit of the reference
// implementation.
const maxHeader = 100_000_000

// maxEntry is the maximum size of one tensor's entry in a header, in bytes.
const maxEntry = 4096

// stTypes are the safetensors dtypes that vapp reads. F8_E8M0 is a power of two, stored as its
// exponent.
var stTypes = map[string]kernels.Format{
	"F32": kernels.F32, "F16": kernels.F16, "BF16": kernels.BF16,
	"I8": kernels.I8, "I64": kernels.I64, "I32": kernels.I32, "U32": kernels.U32, "U8": kernels.U8, "F8_E8M0": kernels.U8,
	"F8_E4M3": kernels.F8E4M3, "F8_E5M2": kernels.F8E5M2,
}

type stEntry struct {
	DType   *string  `json:"dtype"`
	Shape   *[]int64 `json:"shape"`
	Offsets []int64  `json:"data_offsets"`
}

// parseSafetensors reads the header of a safetensors file whose bytes are data: {u64 length, JSON,
// tensor bytes}. Sorted by offset, the tensors must cover the rest of the file exactly, without
// overlap or gap.
func parseSafetensors(path string, data []byte) ([]TensorInfo, error) {
	if len(data) < 8 {
		return nil, fault(path, "header length", "the file has %d bytes, too few for a safetensors header", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader || n > uint64(len(data)-8) || n < 2 || data[8] != '{' {
		if e := misplaced(path, data); e != nil {
			return nil, e
		}
	}
	if n > maxHeader {
		return nil, fault(path, "header length", "is %d bytes, more than the limit of %d", n, maxHeader)
	}
	if n > uint64(len(data)-8) {
		return nil, fault(path, "header length", "is %d bytes, the file has only %d: %s", n, len(data)-8, damaged)
	}
	if n < 2 || data[8] != '{' {
		return nil, fault(path, "header", "is not a JSON object")
	}
	base := 8 + int64(n)
	list, err := stHeader(path, data[8:base], base)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b TensorInfo) int {
		if a.Offset != b.Offset {
			return int(min(max(a.Offset-b.Offset, -1), 1))
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list, checkContiguous(path, list, base, int64(len(data)))
}

// stHeader decodes the JSON entry by entry, to detect duplicate names.
func stHeader(path string, head []byte, base int64) ([]TensorInfo, error) {
	dec := json.NewDecoder(bytes.NewReader(head))
	if _, err := dec.Token(); err != nil {
		return nil, fault(path, "header", "is not JSON: %v", err)
	}
	var list []TensorInfo
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fault(path, "header", "is not JSON: %v", err)
		}
		name, _ := key.(string)
		if seen[name] {
			return nil, fault(path, name, "is in the header twice")
		}
		seen[name] = true
		if name == "__metadata__" {
			if err := skipMetadata(path, name, dec); err != nil {
				return nil, err
			}
			continue
		}
		t, err := stTensor(path, name, dec, base)
		if err != nil {
			return nil, err
		}
		if list = append(list, t); len(list) > maxTensors {
			return nil, fault(path, "header", "has more than %d tensors", maxTensors)
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, fault(path, "header", "is not JSON: %v", err)
	}
	if rest := bytes.TrimSpace(head[dec.InputOffset():]); len(rest) > 0 {
		return nil, fault(path, "header", "has %d bytes after the JSON object", len(rest))
	}
	return list, nil
}

// skipMetadata checks that __metadata__ is a map of strings and ignores its content.
func skipMetadata(path, name string, dec *json.Decoder) error {
	t, err := dec.Token()
	for open := t == json.Delim('{'); err == nil && open; {
		if t, err = dec.Token(); t == json.Delim('}') {
			return nil
		}
		if _, open = t.(string); open { // a key; the next token is its value
			t, err = dec.Token()
			_, open = t.(string)
		}
	}
	if err != nil {
		return fault(path, name, "is not JSON: %v", err)
	}
	return fault(path, name, "is not a map of strings")
}

// stTensor decodes one entry. It limits the entry's size before decoding lists.
func stTensor(path, name string, dec *json.Decoder, base int64) (TensorInfo, error) {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return TensorInfo{}, fault(path, name, "is not JSON: %v", jsonCause(err))
	}
	if len(raw) > maxEntry {
		return TensorInfo{}, fault(path, name, "has an entry of %d bytes, more than the limit of %d", len(raw), maxEntry)
	}
	var e stEntry
	if err := json.Unmarshal(raw, &e); err != nil {
		return TensorInfo{}, fault(path, name, "is not a tensor entry: %v", jsonCause(err))
	}
	return e.tensor(path, name, base)
}

func (e stEntry) tensor(path, name string, base int64) (TensorInfo, error) {
	t := TensorInfo{Name: name, File: path}
	if e.DType == nil || e.Shape == nil || len(e.Offsets) != 2 {
		return t, fault(path, name, "needs dtype, shape and two data_offsets")
	}
	f, ok := stTypes[*e.DType]
	if !ok {
		return t, fault(path, name, "dtype %s is not read (BF16, F16, F32, F8_E4M3, F8_E5M2, F8_E8M0, I32, U32 and U8 are)", clip(*e.DType))
	}
	size, wrong := measure(f, *e.Shape)
	if wrong != "" {
		return t, fault(path, name, "shape %s", wrong)
	}
	lo, hi := e.Offsets[0], e.Offsets[1]
	if lo < 0 || hi < lo || hi > maxElements*8 {
		return t, fault(path, name, "data_offsets [%d, %d] are not a range", lo, hi)
	}
	if hi-lo != size {
		return t, fault(path, name, "data_offsets span %d bytes, dtype and shape make %d", hi-lo, size)
	}
	t.Format, t.Shape, t.Offset, t.Bytes = f, *e.Shape, base+lo, size
	return t, nil
}

// checkContiguous checks that sorted tensors fill base to end exactly.
func checkContiguous(path string, list []TensorInfo, base, end int64) error {
	at, before := base, "the header"
	for _, t := range list {
		switch {
		case t.Offset+t.Bytes > end:
			return fault(path, t.Name, "ends at byte %d, the file has %d: %s", t.Offset+t.Bytes, end, damaged)
		case t.Offset < at:
			return fault(path, t.Name, "overlaps %s", clip(before))
		case t.Offset > at:
			return fault(path, t.Name, "begins %d bytes after the end of %s; a safetensors file has no holes", t.Offset-at, clip(before))
		}
		at, before = t.Offset+t.Bytes, t.Name
	}
	if at != end {
		return fault(path, "header", "%d bytes after the last tensor belong to none", end-at)
	}
	return nil
}

// jsonCause describes a decoding error without Go type names.
func jsonCause(err error) string {
	var ue *json.UnmarshalTypeError
	if errors.As(err, &ue) {
		field := ""
		if ue.Field != "" {
			field = ue.Field + ": "
		}
		return field + "unexpected " + clip(ue.Value)
	}
	return err.Error()
}
