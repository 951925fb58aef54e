package checkpoint

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestGGUFTokenizers compares the tokenizer.json built from metadata with the one that these models
// publish: SmolLM2-135M-Instruct, Llama-3.2-1B, Qwen2-7B.
func TestGGUFTokenizers(t *testing.T) {
	const (
		all     = `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`
		llama   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`
		qwen    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`
		bos     = `{"SpecialToken":{"id":"<|begin_of_text|>","type_id":0}}`
		bosPair = `{"SpecialToken":{"id":"<|begin_of_text|>","type_id":1}}`
		a, b    = `{"Sequence":{"id":"A","type_id":0}}`, `{"Sequence":{"id":"B","type_id":1}}`
	)
	split := func(regex, bytes string) string {
		return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"` + regex + `"},"behavior":"Isolated","invert":false},` + bytes + `]}`
	}
	plain := `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}`
	want := map[string]map[string]string{
		"smollm": {
			"normalizer": `null`,
			"pre_tokenizer": `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
				{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]}`,
			"post_processor": `null`, "decoder": all,
		},
		"llama-bpe": {
			"normalizer":    `null`,
			"pre_tokenizer": split(llama, `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}`),
			"post_processor": `{"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true},
				{"type":"TemplateProcessing","single":[` + bos + `,` + a + `],"pair":[` + bos + `,` + a + `,` + bosPair + `,` + b + `],
				"special_tokens":{"<|begin_of_text|>":{"id":"<|begin_of_text|>","ids":[262],"tokens":["<|begin_of_text|>"]}}}]}`,
			"decoder": all,
		},
		"qwen2": {
			"normalizer": `{"type":"NFC"}`, "pre_tokenizer": split(qwen, plain), "post_processor": plain, "decoder": plain,
		},
	}
	want["llama3"] = want["llama-bpe"]
	for kind, parts := range want {
		c, err := openBytes(kind, newToy(kind).bytes())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.TokenizerJSON()
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Added []struct {
				ID      int
				Content string
				Special bool
			} `json:"added_tokens"`
			Model struct {
				IgnoreMerges bool `json:"ignore_merges"`
				Vocab        map[string]int
				Merges       [][2]string
			}
		}
		var got map[string]any
		if json.Unmarshal(raw, &got) != nil || json.Unmarshal(raw, &file) != nil {
			t.Fatalf("%s: not JSON: %.80s", kind, raw)
		}
		for part, text := range parts {
			var x any
			if err := json.Unmarshal([]byte(text), &x); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got[part], x) {
				t.Errorf("%s: %s\n got %s\nwant %s", kind, part, dump(got[part]), dump(x))
			}
		}
		if dump(file.Added) != `[{"ID":262,"Content":"\u003c|begin_of_text|\u003e","Special":true},{"ID":263,"Content":"\u003c|eot_id|\u003e","Special":true},{"ID":264,"Content":"\u003c|im_end|\u003e","Special":true}]` {
			t.Errorf("%s: added %s", kind, dump(file.Added))
		}
		if m := file.Model; m.IgnoreMerges != (kind[0] == 'l') || len(m.Vocab) != toyVocab || m.Vocab["hello"] != 259 || dump(m.Merges[3]) != `["hell","o"]` {
			t.Errorf("%s: model of %d tokens, merges %v, ignore_merges %v", kind, len(m.Vocab), m.Merges, m.IgnoreMerges)
		}
	}
}

// TestGGUFEnds checks the ids that end a reply: those that the file names, and the end-of-turn
// token of the tokenizer's kind.
func TestGGUFEnds(t *testing.T) {
	for kind, want := range map[string]string{"smollm": "[264,263]", "llama-bpe": "[264,263]", "qwen2": "[264,263]"} {
		c, err := openBytes(kind, newToy(kind).bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got := dump(c.EOSTokenIDs()); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
		s := c.SpecialTokens()
		if s.BOS != (Token{262, "<|begin_of_text|>"}) || s.EOS != (Token{264, "<|im_end|>"}) || s.AddBOS != (kind == "llama-bpe") {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}
