package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"unicode/utf8"
)

// dirText reads the text files of a directory: tokenizer_config.json, chat_template.jinja and
// generation_config.json, each optional.
func dirText(dir string, cfg Config) (text, error) {
	t := text{templates: map[string]string{}}
	t.tokenizer = func() ([]byte, error) { return tokenizerOf(dir) }
	gen, err := readOptional(filepath.Join(dir, "generation_config.json"))
	if err != nil {
		return t, err
	}
	if t.generation, err = generationConfig(gen, cfg.VocabSize); err != nil {
		return t, err
	}
	tok, err := readOptional(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return t, err
	}
	if err := t.readTemplates(dir, tok); err != nil {
		return t, err
	}
	if err := t.readSpecial(dir, tok, cfg); err != nil {
		return t, err
	}
	t.eos = union(t.generation.EosTokenIDs, cfg.EosTokenIDs)
	if id := t.special.EOS.ID; id >= 0 {
		t.eos = union(t.eos, []int{id})
	}
	return t, nil
}

// tokenizerOf returns the tokenizer.json of a directory, or the one that its tiktoken.model describes.
func tokenizerOf(dir string) ([]byte, error) {
	b, err := readSmall(filepath.Join(dir, "tokenizer.json"), maxTokenizer)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	raw, other := readSmall(filepath.Join(dir, tiktokenFile), maxTokenizer)
	if errors.Is(other, fs.ErrNotExist) {
		return nil, err
	}
	if other != nil {
		return nil, other
	}
	tok, err := readOptional(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	return tiktokenJSON(dir, raw, tok)
}

// readOptional reads a JSON object from a file that may be absent.
func readOptional(path string) (*fields, error) {
	raw, err := readSmall(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return &fields{file: path}, nil
	}
	if err != nil {
		return nil, err
	}
	return newFields(path, "", raw)
}

func generationConfig(f *fields, vocab int) (GenerationConfig, error) {
	real := func(key string, lo, hi float64) *float64 {
		if !f.has(key) {
			return nil
		}
		x := f.real(key, lo, hi)
		return &x
	}
	count := func(key string, lo, hi int64) *int {
		if !f.has(key) {
			return nil
		}
		n := f.count(key, lo, hi)
		return &n
	}
	g := GenerationConfig{
		Temperature:       real("temperature", 0, 1000),
		TopK:              count("top_k", -1, maxVocab),
		TopP:              real("top_p", 0, 1),
		MinP:              real("min_p", 0, 1),
		RepetitionPenalty: real("repetition_penalty", 1e-6, 1000),
		MaxNewTokens:      count("max_new_tokens", 1, maxPositions),
		EosTokenIDs:       f.ids("eos_token_id", vocab),
	}
	if f.has("do_sample") {
		on := f.flag("do_sample", false)
		g.DoSample = &on
	}
	return g, f.err
}

// readTemplates reads the chat templates. chat_template.jinja takes precedence over the key
// chat_template, as in transformers; the key is a string or a list of named templates.
func (t *text) readTemplates(dir string, tok *fields) error {
	path := filepath.Join(dir, "chat_template.jinja")
	b, err := readSmall(path, maxTemplate)
	switch {
	case err == nil && !utf8.Valid(b):
		return fault(path, "", "is not UTF-8")
	case err == nil:
		t.templates["default"] = string(b)
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	v, ok := tok.raw("chat_template")
	if !ok {
		return nil
	}
	var one string
	if json.Unmarshal(v, &one) == nil {
		t.templates["default"] = one
		return nil
	}
	var list []struct{ Name, Template string }
	if json.Unmarshal(v, &list) != nil {
		return fault(tok.file, "chat_template", "is neither a string nor a list of {name, template}")
	}
	for _, e := range list {
		t.templates[e.Name] = e.Template
	}
	return nil
}

// readSpecial reads text and id of the special tokens. A token without text takes the id of
// config.json; a text without id keeps the id -1.
func (t *text) readSpecial(dir string, tok *fields, cfg Config) error {
	s := &t.special
	for key, to := range map[string]*Token{"bos_token": &s.BOS, "eos_token": &s.EOS, "pad_token": &s.PAD, "unk_token": &s.UNK} {
		*to = Token{ID: -1, Text: tok.token(key)}
	}
	s.AddBOS = tok.flag("add_bos_token", false)
	if tok.err != nil {
		return tok.err
	}
	ids, err := addedTokens(dir, tok)
	if err != nil {
		return err
	}
	for _, to := range []*Token{&s.BOS, &s.EOS, &s.PAD, &s.UNK} {
		id, ok := ids[to.Text]
		if ok && to.Text != "" {
			if id < 0 || id >= cfg.VocabSize {
				return fault(tok.file, to.Text, "has id %d, vocab_size is %d", id, cfg.VocabSize)
			}
			to.ID = id
		}
	}
	if s.BOS.Text == "" {
		s.BOS.ID = cfg.BosTokenID
	}
	if s.EOS.Text == "" && len(cfg.EosTokenIDs) > 0 {
		s.EOS.ID = cfg.EosTokenIDs[0]
	}
	for text, id := range ids { // ids found only in config.json
		for _, to := range []*Token{&s.BOS, &s.EOS} {
			if to.Text == "" && to.ID == id {
				to.Text = text
			}
		}
	}
	return nil
}

// token reads a special token: a string or an object with its content.
func (f *fields) token(key string) string {
	v, ok := f.raw(key)
	if !ok {
		return ""
	}
	var obj struct{ Content string }
	if v[0] == '{' && json.Unmarshal(v, &obj) == nil {
		return obj.Content
	}
	return f.text(key, "")
}

// addedTokens returns the ids of the added tokens by text, from the key added_tokens_decoder or
// else from tokenizer.json.
func addedTokens(dir string, tok *fields) (map[string]int, error) {
	ids := map[string]int{}
	if v, ok := tok.raw("added_tokens_decoder"); ok {
		var m map[string]struct{ Content string }
		if err := json.Unmarshal(v, &m); err != nil {
			return nil, fault(tok.file, "added_tokens_decoder", "is not a map of tokens: %s", jsonCause(err))
		}
		for id, e := range m {
			n, err := strconv.Atoi(id)
			if err != nil {
				return nil, fault(tok.file, "added_tokens_decoder", "%s is no token id", clip(id))
			}
			ids[e.Content] = n
		}
		return ids, nil
	}
	path := filepath.Join(dir, "tokenizer.json")
	raw, err := readSmall(path, maxTokenizer)
	if errors.Is(err, fs.ErrNotExist) {
		return ids, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := addedInFile(path, raw)
	for _, e := range list {
		ids[e.Content] = e.ID
	}
	return ids, err
}

type addedToken struct {
	ID      int    `json:"id"`
	Content string `json:"content"`
}

// addedInFile reads the key added_tokens of a tokenizer.json and ignores the rest of the file.
func addedInFile(path string, raw []byte) ([]addedToken, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fault(path, "", "is not a JSON object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fault(path, "", "is not JSON: %v", err)
		}
		var list []addedToken
		if key == "added_tokens" {
			if err := dec.Decode(&list); err != nil {
				return nil, fault(path, "added_tokens", "is not a list of tokens: %s", jsonCause(err))
			}
			return list, nil
		}
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			return nil, fault(path, "", "is not JSON: %v", err)
		}
	}
	return nil, nil
}
