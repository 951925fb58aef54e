package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// modelDir writes a valid model directory with two shards, and returns it.
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

// TestBadDir breaks each file of a directory; "" is the directory itself.
func TestBadDir(t *testing.T) {
	const index, shard = "model.safetensors.index.json", "model-1.safetensors"
	remove := "\x00"
	for name, c := range map[string]struct{ put, text, file, field string }{
		"no config":          {"config.json", remove, "", ""},
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
			checkAllocation(t, 32<<20, func() {
				_, err := Open(dir)
				wantError(t, err, filepath.Join(dir, c.file), c.field)
			})
		})
	}
	c, err := Open(modelDir(t))
	if err != nil {
		t.Fatal(err) // the directory is valid without the defects above
	}
	c.Close()
}

// FuzzDirText fuzzes the JSON files next to config.json.
func FuzzDirText(f *testing.F) {
	f.Add([]byte(`{"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":true,"added_tokens_decoder":{"1":{"content":"<s>"}},"chat_template":"{{x}}"}`))
	f.Add([]byte(`{"added_tokens":[{"id":1,"content":"<s>"}],"chat_template":[{"name":"default","template":"x"}],"eos_token_id":[1,2],"temperature":0.6}`))
	cfg := Config{VocabSize: 320, BosTokenID: -1}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := addedInFile("tokenizer.json", b); err != nil {
			wantErrorType(t, err)
		}
		tok, err := newFields("tokenizer_config.json", "", b)
		if err != nil {
			wantErrorType(t, err)
			return
		}
		x := text{templates: map[string]string{}}
		dir := "no such folder"
		if err := x.readTemplates(dir, tok); err != nil {
			wantErrorType(t, err)
		}
		if err := x.readSpecial(dir, tok, cfg); err != nil {
			wantErrorType(t, err)
		} else if s := x.special; s.BOS.ID >= cfg.VocabSize || s.EOS.ID >= cfg.VocabSize {
			t.Errorf("%+v", s)
		}
		if gen, _ := newFields("generation_config.json", "", b); gen != nil {
			if _, err := generationConfig(gen, cfg.VocabSize); err != nil {
				wantErrorType(t, err)
			}
		}
		if _, err := parseIndex("index.json", b); err != nil {
			wantErrorType(t, err)
		} else if !json.Valid(b) {
			t.Error("an index that is not JSON")
		}
	})
}
