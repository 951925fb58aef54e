package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Seeing is what the folder of a small checkpoint with a vision tower lacks for requests with images.
type Seeing struct {
	From                string         // the checkpoint, of 128 tokens
	Processor, Template string         // preprocessor_config.json and chat_template.jinja
	Special             map[int]string // texts of special tokens
}

// Write copies the checkpoint to a folder, with a tokenizer whose tokens 0 to 94 are the printable characters.
func (s Seeing) Write(dir string) error {
	vocab, added := map[string]int{}, []map[string]any{}
	for id := range 128 {
		word, is := s.Special[id]
		if is {
			added = append(added, map[string]any{"id": id, "content": word, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
		} else if word = string(rune(' ' + id)); id >= 95 {
			word = fmt.Sprintf("<unused%d>", id)
		}
		vocab[word] = id
	}
	tokenizer, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": added,
		"pre_tokenizer": map[string]any{"type": "Split", "pattern": map[string]any{"Regex": "."}, "behavior": "Isolated", "invert": false},
		"decoder":       map[string]any{"type": "Fuse"},
		"model":         map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": " "},
	})
	files := map[string][]byte{"tokenizer.json": tokenizer, "chat_template.jinja": []byte(s.Template), "preprocessor_config.json": []byte(s.Processor)}
	for _, name := range []string{"config.json", "model.safetensors"} {
		b, bad := os.ReadFile(filepath.Join(s.From, name))
		files[name], err = b, errors.Join(err, bad)
	}
	if err = errors.Join(err, os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for name, b := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	return err
}
