package checkpoint

import (
	"encoding/binary"
	"strings"
	"testing"
)

// stFile returns a safetensors file with a header and n zero bytes.
func stFile(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestSafetensors(t *testing.T) {
	b := stFile(`{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}  `, 16)
	list, err := parseSafetensors("m.safetensors", b)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Name != "a" || list[1].Offset-list[0].Offset != 4 || list[1].Rows() != 2 || list[1].RowBytes() != 6 {
		t.Errorf("%+v", list)
	}
}

func TestBadSafetensors(t *testing.T) {
	one := func(entry string) []byte { return stFile(`{"x":{`+entry+`}}`, 16) }
	two := func(a, b string) []byte {
		return stFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":`+a+`},"b":{"dtype":"F32","shape":[2],"data_offsets":`+b+`}}`, 16)
	}
	many := strings.Repeat("1,", 1<<20)
	for name, c := range map[string]struct {
		field string
		b     []byte
	}{
		"seven bytes":        {"header length", make([]byte, 7)},
		"2^64-1 header":      {"header length", append([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), '{', '}')},
		"2^60 header":        {"header length", binary.LittleEndian.AppendUint64(nil, 1<<60)},
		"over 100 MB":        {"header length", binary.LittleEndian.AppendUint64(nil, maxHeader+1)},
		"longer than file":   {"header length", append(binary.LittleEndian.AppendUint64(nil, 3), "{}"...)},
		"no header":          {"", stFile("", 16)},
		"not an object":      {"header", stFile(`[]`, 0)},
		"cut JSON":           {"x", stFile(`{"x":{"dtype":"F32"`, 0)},
		"deep JSON":          {"x", stFile(`{"x":`+strings.Repeat("[", 1<<20), 0)},
		"bytes after":        {"header", stFile(`{}{}`, 0)},
		"twice":              {"x", stFile(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}`, 16)},
		"metadata of ints":   {"__metadata__", stFile(`{"__metadata__":{"a":1}}`, 0)},
		"metadata of maps":   {"__metadata__", stFile(`{"__metadata__":{"a":{}}}`, 0)},
		"metadata list":      {"__metadata__", stFile(`{"__metadata__":["a"]}`, 0)},
		"metadata cut":       {"__metadata__", stFile(`{"__metadata__":{"a":"b"`, 0)},
		"entry of text":      {"x", stFile(`{"x":"F32"}`, 0)},
		"no dtype":           {"x", one(`"shape":[4],"data_offsets":[0,16]`)},
		"no shape":           {"x", one(`"dtype":"F32","data_offsets":[0,16]`)},
		"no offsets":         {"x", one(`"dtype":"F32","shape":[4]`)},
		"three offsets":      {"x", one(`"dtype":"F32","shape":[4],"data_offsets":[0,8,16]`)},
		"offset of text":     {"x", one(`"dtype":"F32","shape":[4],"data_offsets":["0",16]`)},
		"offset 0.5":         {"x", one(`"dtype":"F32","shape":[4],"data_offsets":[0.5,16]`)},
		"offset 2^64":        {"x", one(`"dtype":"F32","shape":[4],"data_offsets":[0,18446744073709551616]`)},
		"offset 2^63-1":      {"x", one(`"dtype":"F32","shape":[4],"data_offsets":[9223372036854775791,9223372036854775807]`)},
		"negative offset":    {"x", one(`"dtype":"F32","shape":[4],"data_offsets":[-16,0]`)},
		"backward":           {"x", one(`"dtype":"F32","shape":[4],"data_offsets":[16,0]`)},
		"outside":            {"x", one(`"dtype":"F32","shape":[8],"data_offsets":[0,32]`)},
		"span":               {"x", one(`"dtype":"F32","shape":[4],"data_offsets":[0,12]`)},
		"dtype F64":          {"x", one(`"dtype":"F64","shape":[2],"data_offsets":[0,16]`)},
		"dtype of 1 MB":      {"x", one(`"dtype":"` + strings.Repeat("F", 1<<20) + `","shape":[2],"data_offsets":[0,16]`)},
		"2^60 shape":         {"x", one(`"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,16]`)},
		"overflowing shape":  {"x", one(`"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,16]`)},
		"negative shape":     {"x", one(`"dtype":"F32","shape":[-2,-2],"data_offsets":[0,16]`)},
		"empty shape":        {"x", one(`"dtype":"F32","shape":[0],"data_offsets":[0,0]`)},
		"nine dimensions":    {"x", one(`"dtype":"F32","shape":[4,1,1,1,1,1,1,1,1],"data_offsets":[0,16]`)},
		"million dimensions": {"x", one(`"dtype":"F32","shape":[` + many + `4],"data_offsets":[0,16]`)},
		"million offsets":    {"x", one(`"dtype":"F32","shape":[4],"data_offsets":[` + many + `4]`)},
		"overlap":            {"b", two("[0,8]", "[4,12]")},
		"same place":         {"b", two("[0,8]", "[0,8]")},
		"hole":               {"b", two("[0,8]", "[9,17]")},
		"hole before":        {"a", two("[4,12]", "[12,20]")},
		"bytes at the end":   {"header", stFile(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 9)},
		"no tensor":          {"header", stFile(`{}`, 8)},
	} {
		t.Run(name, func(t *testing.T) {
			checkAllocation(t, 16<<20, func() {
				_, err := parseSafetensors("m.safetensors", c.b)
				wantError(t, err, "m.safetensors", c.field)
			})
		})
	}
}

// TestCutSafetensors checks that a file truncated at any byte is refused.
func TestCutSafetensors(t *testing.T) {
	whole := stFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I32","shape":[2],"data_offsets":[8,16]}}`, 16)
	for n := range len(whole) {
		_, err := parseSafetensors("m.safetensors", whole[:n])
		wantErrorType(t, err)
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(stFile(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]}}`, 16))
	f.Add(stFile(`{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2,2],"data_offsets":[2,6]},"c":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[6,8]}}`, 8))
	f.Add(stFile(`{}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseSafetensors("m.safetensors", b)
		if err != nil {
			wantErrorType(t, err)
			return
		}
		total := int64(0)
		for _, x := range list {
			total += x.Bytes
			if x.Offset < 8 || x.Bytes < 1 || x.Offset+x.Bytes > int64(len(b)) || x.Rows()*x.RowBytes() != x.Bytes {
				t.Errorf("accepted %+v", x)
			}
		}
		if n := binary.LittleEndian.Uint64(b); total != int64(len(b))-8-int64(n) {
			t.Errorf("%d bytes of tensors in %d", total, len(b))
		}
	})
}
