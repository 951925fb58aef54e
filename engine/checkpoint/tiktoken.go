package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
)

// tiktokenFile is the vocabulary of Kimi's and Moonlight's tokenizers, which come without a tokenizer.json: for
// each token a line with its bytes in base64 and its id.
const tiktokenFile = "tiktoken.model"

// tiktokenClass is the tokenizer_class of these folders. Its Python source, which is in them, has the expression that
// splits text; vapp has it as the GGUF vocabulary tiktokenKind.
const (
	tiktokenClass = "TikTokenTokenizer"
	tiktokenKind  = "kimi-k2"
)

// tiktokenReserved is how many ids behind the last token the class keeps for special tokens.
const tiktokenReserved = 256

// tiktokenJSON returns the tokenizer.json of a folder with a tiktoken.model: byte-level BPE that merges the pair
// of the smallest id first, as tiktoken does, and the special tokens of tokenizer_config.json.
func tiktokenJSON(dir string, raw []byte, tok *fields) ([]byte, error) {
	class := tok.text("tokenizer_class", "")
	if tok.err != nil {
		return nil, tok.err
	}
	if class != tiktokenClass {
		return nil, fault(tok.file, "tokenizer_class", "is %q; of folders with a %s and no tokenizer.json, those of %s (Kimi, Moonlight) are read; write a tokenizer.json with transformers", clip(class), tiktokenFile, tiktokenClass)
	}
	words, err := tiktokenWords(filepath.Join(dir, tiktokenFile), raw)
	if err != nil {
		return nil, err
	}
	added, err := tiktokenAdded(tok, len(words))
	if err != nil {
		return nil, err
	}
	letters := byteLetters()
	b := append(make([]byte, 0, 64*len(words)), `{"version":"1.0","truncation":null,"padding":null,"added_tokens":`...)
	text, err := json.Marshal(added)
	if err != nil {
		return nil, fault(tok.file, "added_tokens_decoder", "%v", err)
	}
	kind := bpeKinds()[tiktokenKind]
	b = append(append(b, text...), `,"normalizer":`+kind.normalizer+`,"pre_tokenizer":`+kind.pretokenizer+`,"post_processor":null,"decoder":`+kind.decoder...)
	b = append(b, `,"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":true,"vocab":{`...)
	shown := func(word []byte) []byte {
		out := []byte{'"'}
		for _, c := range word {
			switch r := letters[c]; r {
			case '"', '\\':
				out = append(out, '\\', byte(r))
			default:
				out = append(out, string(r)...)
			}
		}
		return append(out, '"')
	}
	first := true
	for id, w := range words {
		b = append(append(comma(b, &first), shown(w)...), ':')
		b = strconv.AppendInt(b, int64(id), 10)
	}
	b = append(b, `},"merges":[`...)
	first = true
	for _, m := range tiktokenMerges(words) {
		b = append(append(comma(b, &first), '['), shown(m[0])...)
		b = append(append(append(b, ','), shown(m[1])...), ']')
	}
	if b = append(b, `]}}`...); len(b) > maxTokenizer {
		return nil, fault(filepath.Join(dir, tiktokenFile), "", "makes a tokenizer.json of %d bytes, more than %d", len(b), maxTokenizer)
	}
	return b, nil
}

// tiktokenWords returns the bytes of each token by id. Ids have no gaps, and each byte is a token.
func tiktokenWords(path string, raw []byte) ([][]byte, error) {
	lines := bytes.Split(bytes.TrimRight(raw, "\n"), []byte("\n"))
	if len(lines) > maxVocab {
		return nil, fault(path, "", "has %d lines, more than %d", len(lines), maxVocab)
	}
	words, seen, single := make([][]byte, len(lines)), make(map[string]int, len(lines)), 0
	for i, line := range lines {
		text, rank, ok := bytes.Cut(line, []byte(" "))
		word, err := base64.StdEncoding.AppendDecode(nil, text)
		id, bad := strconv.Atoi(string(bytes.TrimRight(rank, "\r")))
		switch {
		case !ok || err != nil || bad != nil || len(word) == 0:
			return nil, fault(path, "", "line %d is not a token in base64 and its id: %s", i+1, clip(string(line)))
		case id < 0 || id >= len(lines) || words[id] != nil:
			return nil, fault(path, "", "line %d: id %d is there twice, or above that of the last of %d tokens", i+1, id, len(lines))
		}
		if other, twice := seen[string(word)]; twice {
			return nil, fault(path, "", "line %d: token %d is token %d again", i+1, id, other)
		}
		words[id], seen[string(word)] = word, id
		if len(word) == 1 {
			single++
		}
	}
	if single != 256 {
		return nil, fault(path, "", "has %d tokens of one byte, not 256", single)
	}
	return words, nil
}

// tiktokenMerges returns the pairs of tokens whose bytes together are a token, by the id of that token. Tokens
// longer than maxPiece are matched as whole words only.
func tiktokenMerges(words [][]byte) [][2][]byte {
	ids := make(map[string]int, len(words))
	for id, w := range words {
		ids[string(w)] = id
	}
	var out [][2][]byte
	for _, w := range words {
		from := len(out)
		for at := 1; at < len(w) && len(w) <= maxPiece; at++ {
			_, left := ids[string(w[:at])]
			_, right := ids[string(w[at:])]
			if left && right {
				out = append(out, [2][]byte{w[:at], w[at:]})
			}
		}
		slices.SortFunc(out[from:], func(a, b [2][]byte) int {
			return cmp.Or(cmp.Compare(ids[string(a[0])], ids[string(b[0])]), cmp.Compare(ids[string(a[1])], ids[string(b[1])]))
		})
	}
	return out
}

// tiktokenToken is an added token of a tokenizer.json and of added_tokens_decoder.
type tiktokenToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// tiktokenAdded returns the special tokens in the order of ids: those of tokenizer_config.json, and names of the
// class for the other ids that it reserves behind n tokens.
func tiktokenAdded(tok *fields, n int) ([]tiktokenToken, error) {
	const key = "added_tokens_decoder"
	named := map[string]tiktokenToken{}
	if v, ok := tok.raw(key); ok {
		if err := json.Unmarshal(v, &named); err != nil {
			return nil, fault(tok.file, key, "is not a map of tokens: %s", jsonCause(err))
		}
	}
	out, seen := make([]tiktokenToken, tiktokenReserved), map[string]bool{}
	for i := range out {
		out[i] = tiktokenToken{ID: n + i, Content: "<|reserved_token_" + strconv.Itoa(n+i) + "|>"}
	}
	for text, t := range named {
		id, err := strconv.Atoi(text)
		if err != nil || id < n || id >= n+tiktokenReserved || t.Content == "" || seen[t.Content] {
			return nil, fault(tok.file, key, "%s: %s is not one of the %d special tokens behind the %d of %s", clip(text), clip(t.Content), tiktokenReserved, n, tiktokenFile)
		}
		t.ID, seen[t.Content] = id, true
		out[id-n] = t
	}
	return out, nil
}
