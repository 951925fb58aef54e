package checkpoint

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxPiece is the maximum length in bytes of a token that merges of a SentencePiece vocabulary make; it
// bounds the work of a hostile file. Runs of 31 blanks, of 93 bytes, are among Gemma's longest.
const maxPiece = 256

// Values of tokenizer.ggml.token_type.
const (
	tokenNormal      = 1
	tokenUnknown     = 2
	tokenControl     = 3
	tokenUserDefined = 4
	tokenUnused      = 5
	tokenByte        = 6 // <0x0A>, of vocabularies with spaces
)

// tokenizerJSON returns the tokenizer.json that the metadata describes: BPE, id = index. Control and
// user-defined tokens become added tokens; control tokens are special. Unused tokens, which pad the
// embedding, and empty ones are omitted.
func (g *gguf) tokenizerJSON(kind vocabulary, special SpecialTokens) ([]byte, error) {
	tokens, err := g.strings("tokenizer.ggml.tokens")
	if err != nil {
		return nil, err
	}
	types, err := g.tokenTypes(len(tokens))
	if err != nil {
		return nil, err
	}
	vocab := make(map[string]int, len(tokens))
	for i, t := range tokens {
		if t == "" {
			types[i] = tokenUnused
		}
		if types[i] == tokenUnused {
			continue
		}
		if types[i] == tokenByte && !kind.spaces {
			return nil, fault(g.path, "tokenizer.ggml.token_type", "token %d has type 6; a byte-level vocabulary has types 1 to 5", i)
		}
		if j, twice := vocab[t]; twice {
			return nil, fault(g.path, "tokenizer.ggml.tokens", "token %d is token %d again: %s", i, j, clip(t))
		}
		vocab[t] = i
	}
	pairs, err := g.mergePairs(kind, tokens, types, vocab)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 32*(len(tokens)+len(pairs))+4096)
	b = append(b, `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[`...)
	b = appendAdded(b, tokens, types)
	b = append(b, `],"normalizer":`+kind.normalizer+`,"pre_tokenizer":`+kind.pretokenizer+`,"post_processor":`...)
	if b, err = g.appendPost(b, kind, special); err != nil {
		return nil, err
	}
	b = append(b, `,"decoder":`+kind.decoder+`,"model":{"type":"BPE","dropout":null,"unk_token":`...)
	if kind.spaces && special.UNK.ID >= 0 {
		b = appendString(b, special.UNK.Text)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":`...)
	b = strconv.AppendBool(b, kind.spaces)
	b = append(b, `,"byte_fallback":`...)
	b = strconv.AppendBool(b, kind.spaces)
	b = append(b, `,"ignore_merges":`...)
	b = strconv.AppendBool(b, kind.ignoreMerges)
	b = append(b, `,"vocab":{`...)
	first := true
	for i, t := range tokens {
		if types[i] == tokenUnused {
			continue
		}
		b = comma(b, &first)
		b = append(appendString(b, t), ':')
		b = strconv.AppendInt(b, int64(i), 10)
	}
	b = append(b, `},"merges":[`...)
	first = true
	for _, m := range pairs {
		b = append(comma(b, &first), '[')
		b = append(appendString(b, m[0]), ',')
		b = append(appendString(b, m[1]), ']')
	}
	return append(b, `]}}`...), nil
}

// tokenTypes returns the type of every token; without the key all are normal.
func (g *gguf) tokenTypes(n int) ([]int64, error) {
	const key = "tokenizer.ggml.token_type"
	out := make([]int64, n)
	v, ok := g.values[key]
	if ok && (v.kind != kindArray || v.elem.size() == 0 || v.n != n) {
		return nil, fault(g.path, key, "is no array of %d numbers", n)
	}
	for i := range out {
		out[i] = tokenNormal
		if !ok {
			continue
		}
		t, whole := v.element(i)
		if !whole || t < tokenNormal || t > tokenByte {
			return nil, fault(g.path, key, "token %d has type %d; types are 1 to 6", i, t)
		}
		out[i] = t
	}
	return out, nil
}

func appendAdded(b []byte, tokens []string, types []int64) []byte {
	first := true
	for i, t := range tokens {
		if types[i] == tokenNormal || types[i] == tokenUnused || types[i] == tokenByte {
			continue
		}
		b = comma(b, &first)
		b = append(b, `{"id":`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, `,"content":`...)
		b = appendString(b, t)
		b = append(b, `,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":`...)
		b = strconv.AppendBool(b, types[i] != tokenUserDefined)
		b = append(b, '}')
	}
	return b
}

// appendPost writes the post-processor: ByteLevel if the kind has one, and the template that adds
// BOS and EOS if the file asks for them.
func (g *gguf) appendPost(b []byte, kind vocabulary, special SpecialTokens) ([]byte, error) {
	f := &ggufFields{g: g}
	addEOS := f.flag("tokenizer.ggml.add_eos_token", false)
	if f.err != nil {
		return nil, f.err
	}
	var before, after []Token
	if special.AddBOS {
		before = []Token{special.BOS}
	}
	if addEOS {
		after = []Token{special.EOS}
	}
	for i, list := range [][]Token{before, after} {
		if key := []string{"bos", "eos"}[i]; len(list) > 0 && list[0].ID < 0 {
			return nil, fault(g.path, "tokenizer.ggml.add_"+key+"_token", "is set, but the file has no tokenizer.ggml.%s_token_id; convert the model again", key)
		}
	}
	template := ""
	if len(before)+len(after) > 0 {
		template = templateJSON(before, after)
	}
	switch {
	case kind.postBytes == "" && template == "":
		return append(b, "null"...), nil
	case template == "":
		return append(b, kind.postBytes...), nil
	case kind.postBytes == "":
		return append(b, template...), nil
	}
	return append(b, `{"type":"Sequence","processors":[`+kind.postBytes+`,`+template+`]}`...), nil
}

// templateJSON returns a TemplateProcessing that adds tokens before and after a text.
func templateJSON(before, after []Token) string {
	piece := func(t Token, id int) string {
		return `{"SpecialToken":{"id":` + quoted(t.Text) + `,"type_id":` + strconv.Itoa(id) + `}}`
	}
	sequence := func(name string, id int) string {
		var parts []string
		for _, t := range before {
			parts = append(parts, piece(t, id))
		}
		parts = append(parts, `{"Sequence":{"id":"`+name+`","type_id":`+strconv.Itoa(id)+`}}`)
		for _, t := range after {
			parts = append(parts, piece(t, id))
		}
		return strings.Join(parts, ",")
	}
	var names []string
	seen := map[string]bool{}
	for _, t := range append(append([]Token{}, before...), after...) {
		if !seen[t.Text] {
			seen[t.Text] = true
			names = append(names, quoted(t.Text)+`:{"id":`+quoted(t.Text)+`,"ids":[`+strconv.Itoa(t.ID)+`],"tokens":[`+quoted(t.Text)+`]}`)
		}
	}
	return `{"type":"TemplateProcessing","single":[` + sequence("A", 0) + `],"pair":[` + sequence("A", 0) + `,` + sequence("B", 1) +
		`],"special_tokens":{` + strings.Join(names, ",") + `}}`
}

// mergePairs returns the merges in their order. Both halves and their concatenation must be tokens;
// otherwise the tokenizer library refuses the file without naming the merge.
func (g *gguf) mergePairs(kind vocabulary, tokens []string, types []int64, vocab map[string]int) ([][2]string, error) {
	if kind.scored {
		return g.scoredPairs(tokens, types, vocab)
	}
	merges, err := g.strings("tokenizer.ggml.merges")
	if err != nil {
		return nil, err
	}
	pairs := make([][2]string, 0, len(merges))
	for i, m := range merges {
		at := -1
		if m != "" {
			at = strings.IndexByte(m[1:], ' ') + 1 // a half may be a blank
		}
		ok := at > 0
		if ok {
			l, r := m[:at], m[at+1:]
			_, okL := vocab[l]
			_, okR := vocab[r]
			_, okM := vocab[l+r]
			ok = okL && okR && okM
			pairs = append(pairs, [2]string{l, r})
		}
		if !ok {
			return nil, fault(g.path, "tokenizer.ggml.merges", "merge %d is not a pair of tokens whose concatenation is a token: %s", i, clip(m))
		}
	}
	return pairs, nil
}

// scoredPairs returns the merges of a SentencePiece vocabulary: every pair of tokens whose
// concatenation is a token, by falling score of that token. Pairs of one token are ordered by their
// ids, as transformers does.
func (g *gguf) scoredPairs(tokens []string, types []int64, vocab map[string]int) ([][2]string, error) {
	const key = "tokenizer.ggml.scores"
	v, ok := g.values[key]
	if !ok || v.kind != kindArray || v.elem != kindF32 || v.n != len(tokens) {
		return nil, fault(g.path, key, "is no array of %d numbers", len(tokens))
	}
	score := func(i int) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(v.raw[4*i:]))
	}
	var order []int
	for i, t := range tokens {
		if s := score(i); !finite(float64(s)) {
			return nil, fault(g.path, key, "token %d has the score %v", i, s)
		}
		if (types[i] == tokenNormal || types[i] == tokenUserDefined) && len(t) <= maxPiece {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(score(b), score(a)) })
	var pairs [][2]string
	size := 0 // of the tokenizer.json that is made
	for _, i := range order {
		t, from := tokens[i], len(pairs)
		for at := range t {
			if at == 0 {
				continue
			}
			_, okL := vocab[t[:at]]
			_, okR := vocab[t[at:]]
			if okL && okR {
				if size += len(t) + len(`["",""],`); size > maxTokenizer {
					return nil, fault(g.path, "tokenizer.ggml.tokens", "have merges of more than %d bytes; convert the model again", maxTokenizer)
				}
				pairs = append(pairs, [2]string{t[:at], t[at:]})
			}
		}
		slices.SortFunc(pairs[from:], func(a, b [2]string) int {
			return cmp.Or(cmp.Compare(vocab[a[0]], vocab[b[0]]), cmp.Compare(vocab[a[1]], vocab[b[1]]))
		})
	}
	return pairs, nil
}

func comma(b []byte, first *bool) []byte {
	if *first {
		*first = false
		return b
	}
	return append(b, ',')
}

func quoted(s string) string { return string(appendString(nil, s)) }

// appendString writes s, valid UTF-8, as a JSON string.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
