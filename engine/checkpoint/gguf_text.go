package checkpoint

import "strings"

// endings are the texts of tokens that end a reply, as llama.cpp finds them; <|end|> is one unless
// the vocabulary has <|return|> or <|calls|>, where it ends a message.
var endings = map[string]bool{
	"<|eot_id|>": true, "<|im_end|>": true, "<|end|>": true, "<|return|>": true, "<|call|>": true, "<|flush|>": true, "<|calls|>": true,
	"<end_of_turn>": true, "<|endoftext|>": true, "</s>": true, "<|eom_id|>": true, "<EOT>": true, "_<EOT>": true, "[EOT]": true, "[EOS]": true,
	"<|end_of_text|>": true, "<end_of_utterance>": true, "<eos>": true, "<turn|>": true, "<|tool_response>": true,
	"<｜end▁of▁sentence｜>": true, "[e~[": true,
}

// ends returns the ids of control and user-defined tokens that end a reply.
func (g *gguf) ends(tokens ggufValue) ([]int, error) {
	types, err := g.tokenTypes(tokens.n)
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	var order []string
	for i, at := 0, 0; i < tokens.n; i++ {
		text := tokens.next(&at)
		if (types[i] == tokenControl || types[i] == tokenUserDefined) && endings[string(text)] {
			found[string(text)] = i
			order = append(order, string(text))
		}
	}
	_, returns := found["<|return|>"]
	_, calls := found["<|calls|>"]
	var ids []int
	for _, text := range order {
		if text != "<|end|>" || !returns && !calls {
			ids = append(ids, found[text])
		}
	}
	return ids, nil
}

// ggufText reads the text side of the metadata: tokenizer, special tokens, templates.
func ggufText(g *gguf, cfg Config) (text, error) {
	kind, err := g.vocabulary()
	if err != nil {
		return text{}, err
	}
	tokens := g.values["tokenizer.ggml.tokens"]
	if tokens.kind != kindArray || tokens.elem != kindString || tokens.n == 0 {
		return text{}, fault(g.path, "tokenizer.ggml.tokens", "is missing or no array of strings")
	}
	if tokens.n > cfg.VocabSize {
		return text{}, fault(g.path, "tokenizer.ggml.tokens", "has %d tokens, token_embd.weight has %d rows", tokens.n, cfg.VocabSize)
	}
	f := &ggufFields{g: g}
	token := func(role string, absent int) Token {
		id := f.id("tokenizer.ggml."+role+"_token_id", tokens.n)
		if id < 0 && absent < tokens.n {
			id = absent
		}
		if id < 0 {
			return Token{ID: -1}
		}
		return Token{ID: id, Text: tokens.at(id)}
	}
	bos, eos, unk := -1, -1, -1
	if kind.scored { // the ids of SentencePiece
		bos, eos, unk = 1, 2, 0
	}
	t := text{templates: map[string]string{}}
	t.special = SpecialTokens{
		BOS: token("bos", bos), EOS: token("eos", eos), PAD: token("padding", -1), UNK: token("unknown", unk),
		AddBOS: f.flag("tokenizer.ggml.add_bos_token", kind.addBOS) || kind.alwaysBOS,
	}
	ends, err := g.ends(tokens)
	if err != nil {
		return text{}, err
	}
	for _, id := range append([]int{t.special.EOS.ID, token("eot", -1).ID, token("eom", -1).ID}, ends...) {
		if id >= 0 {
			t.eos = union(t.eos, []int{id})
		}
	}
	for _, key := range g.keys {
		if name, ok := strings.CutPrefix(key, "tokenizer.chat_template"); ok && (name == "" || name[0] == '.') {
			if name = strings.TrimPrefix(name, "."); name == "" {
				name = "default"
			}
			if g.values[key].kind == kindString {
				t.templates[name] = f.text(key, "")
			}
		}
	}
	t.tokenizer = func() ([]byte, error) { return g.tokenizerJSON(kind, t.special) }
	return t, f.err
}
