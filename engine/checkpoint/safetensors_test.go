package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stFile is a safetensors file of a header and so many zero bytes.
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
		"no header":          {"header", stFile("", 16)},
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
			thrifty(t, 16<<20, func() {
				_, err := parseSafetensors("m.safetensors", c.b)
				wantError(t, err, "m.safetensors", c.field)
			})
		})
	}
}

// TestCutSafetensors holds that a file cut anywhere is refused.
func TestCutSafetensors(t *testing.T) {
	whole := stFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I32","shape":[2],"data_offsets":[8,16]}}`, 16)
	for n := range len(whole) {
		_, err := parseSafetensors("m.safetensors", whole[:n])
		wantErrorType(t, err)
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(stFile(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]}}`, 16))
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

// modelDir writes a directory that opens, of two shards, and returns it.
func modelDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	config, err := json.Marshal(small())
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "config.json", string(config))
	for i, name := range []string{"a", "b"} {
		put(t, dir, fmt.Sprintf("model-%d.safetensors", i), string(stFile(`{"`+name+`":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`, 16)))
	}
	put(t, dir, "model.safetensors.index.json", `{"weight_map":{"a":"model-0.safetensors","b":"model-1.safetensors"}}`)
	return dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBadDir: each file of a directory, broken; "" stands for the directory.
func TestBadDir(t *testing.T) {
	const index, shard = "model.safetensors.index.json", "model-1.safetensors"
	remove := "\x00"
	for name, c := range map[string]struct{ put, text, file, field string }{
		"no config":          {"config.json", remove, "config.json", ""},
		"empty config":       {"config.json", "", "config.json", ""},
		"no weights":         {index, remove, "", ""},
		"empty index":        {index, "{}", index, "weight_map"},
		"index list":         {index, `{"weight_map":["a"]}`, index, "weight_map"},
		"index not JSON":     {index, `{"weight_map":`, index, "weight_map"},
		"shard above":        {index, `{"weight_map":{"a":"../model-0.safetensors"}}`, index, "a"},
		"shard at root":      {index, `{"weight_map":{"a":"/etc/passwd"}}`, index, "a"},
		"shard ..":           {index, `{"weight_map":{"a":".."}}`, index, "a"},
		"shard .":            {index, `{"weight_map":{"a":"."}}`, index, "a"},
		"shard of none":      {index, `{"weight_map":{"a":""}}`, index, "a"},
		"shard backslash":    {index, `{"weight_map":{"a":"..\\model-0.safetensors"}}`, index, "a"},
		"shard line":         {index, `{"weight_map":{"a":"x\ny"}}`, index, "a"},
		"shard NUL":          {index, `{"weight_map":{"a":"x\u0000y"}}`, index, "a"},
		"shard missing":      {index, `{"weight_map":{"a":"model-7.safetensors"}}`, "model-7.safetensors", ""},
		"shard the config":   {index, `{"weight_map":{"a":"config.json"}}`, "config.json", "header length"},
		"tensor elsewhere":   {index, `{"weight_map":{"b":"model-0.safetensors","a":"model-1.safetensors"}}`, index, "a"},
		"tensor nowhere":     {index, `{"weight_map":{"a":"model-0.safetensors","c":"model-1.safetensors"}}`, index, "c"},
		"tensor twice":       {shard, string(stFile(`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`, 16)), shard, "a"},
		"empty shard":        {shard, "", shard, ""},
		"generation NaN":     {"generation_config.json", `{"temperature": NaN}`, "generation_config.json", "temperature"},
		"generation -1":      {"generation_config.json", `{"top_p": -1}`, "generation_config.json", "top_p"},
		"generation eos":     {"generation_config.json", `{"eos_token_id": 320}`, "generation_config.json", "eos_token_id"},
		"template kind":      {"tokenizer_config.json", `{"chat_template": 3}`, "tokenizer_config.json", "chat_template"},
		"template not UTF-8": {"chat_template.jinja", "\xff", "chat_template.jinja", ""},
		"template size":      {"chat_template.jinja", strings.Repeat("x", maxTemplate+1), "chat_template.jinja", ""},
		"special kind":       {"tokenizer_config.json", `{"bos_token": 3}`, "tokenizer_config.json", "bos_token"},
		"special id":         {"tokenizer_config.json", `{"bos_token": "<s>", "added_tokens_decoder": {"999": {"content": "<s>"}}}`, "tokenizer_config.json", "<s>"},
		"added id":           {"tokenizer_config.json", `{"added_tokens_decoder": {"x": {"content": "<s>"}}}`, "tokenizer_config.json", "added_tokens_decoder"},
		"added list":         {"tokenizer_config.json", `{"added_tokens_decoder": []}`, "tokenizer_config.json", "added_tokens_decoder"},
		"tokenizer list":     {"tokenizer.json", `[]`, "tokenizer.json", ""},
		"tokenizer cut":      {"tokenizer.json", `{"version": "1.0", "added_tokens": [`, "tokenizer.json", "added_tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := modelDir(t)
			if c.text == remove {
				if err := os.Remove(filepath.Join(dir, c.put)); err != nil {
					t.Fatal(err)
				}
			} else {
				put(t, dir, c.put, c.text)
			}
			thrifty(t, 32<<20, func() {
				_, err := Open(dir)
				wantError(t, err, filepath.Join(dir, c.file), c.field)
			})
		})
	}
	c, err := Open(modelDir(t))
	if err != nil {
		t.Fatal(err) // what is broken above is the only thing wrong
	}
	c.Close()
}
