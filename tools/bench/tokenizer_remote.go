package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"vapp.dev/tools/bench/workload"
)

// Remote is the server's tokenizer, through its routes /tokenize and /detokenize in the form of
// vLLM (and vapp) or of llama-server.
type Remote struct {
	s     *Server
	model string
	llama bool
}

// RemoteTokenizer checks whether the server has these routes. It retries for the time of patience
// while the server does not answer.
func RemoteTokenizer(ctx context.Context, s *Server, model string, patience time.Duration) (r *Remote, err error) {
	var refusal error // a permanent refusal
	err = patiently(ctx, patience, func() error {
		var err error
		if r, err = remoteTokenizer(ctx, s, model); isRefusal(err) {
			refusal = err
			return nil
		}
		return err
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return nil, fmt.Errorf("bench: no tokenizer: %w; prompts are made of tokens and counted in them: give --tokenizer (a directory with a tokenizer.json, that file, or a GGUF file)", err)
	}
	return r, nil
}

func remoteTokenizer(ctx context.Context, s *Server, model string) (*Remote, error) {
	var first error
	for _, llama := range []bool{false, true} {
		r := &Remote{s, model, llama}
		ids, err := r.Encode(ctx, "a")
		if err == nil && len(ids) > 0 {
			return r, nil
		}
		if err == nil {
			err = fmt.Errorf("%s/tokenize gives no tokens", s.BaseURL)
		}
		if !isRefusal(err) && first == nil {
			first = err
		}
		if first == nil && llama {
			first = err
		}
	}
	return nil, first
}

// Encode implements workload.Tokenizer.
func (r *Remote) Encode(ctx context.Context, text string) ([]int32, error) {
	return r.encode(ctx, text, false)
}

func (r *Remote) encode(ctx context.Context, text string, special bool) ([]int32, error) {
	question := any(map[string]any{"model": r.model, "prompt": text, "add_special_tokens": special})
	if r.llama {
		question = map[string]any{"content": text, "add_special": special}
	}
	var reply struct{ Tokens []int32 }
	return reply.Tokens, r.call(ctx, "/tokenize", question, &reply)
}

// marked matches text that tokenizers read as a special token. No route lists the special ids, so
// random prompts leave out tokens whose text matches.
var marked = regexp.MustCompile(`<\|[^<>|\n]{1,64}\|>|</?s>|<(?:unk|pad|bos|eos|mask|cls|sep)>|<(?:unused|reserved|extra_id|start_of|end_of)[^<>\n]{0,32}>|\[(?:INST|/INST|UNK|PAD|CLS|SEP|MASK)\]`)

// Decode implements workload.Tokenizer.
func (r *Remote) Decode(ctx context.Context, ids []int32) (string, error) {
	text, err := r.decode(ctx, ids)
	return marked.ReplaceAllString(text, ""), err
}

func (r *Remote) decode(ctx context.Context, ids []int32) (string, error) {
	var reply struct{ Prompt, Content string }
	err := r.call(ctx, "/detokenize", map[string]any{"model": r.model, "tokens": ids}, &reply)
	return reply.Prompt + reply.Content, err
}

func (r *Remote) call(ctx context.Context, path string, question, reply any) error {
	text, err := r.s.ask(ctx, path, question)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("%s%s: %w: %s", r.s.BaseURL, path, err, clip(string(text)))
	}
	return nil
}

// maxVocabulary bounds the size of a vocabulary.
const maxVocabulary = 1 << 22

// Vocabulary implements workload.Tokenizer. llama-server reports the size; for other servers it is
// the first id that /detokenize refuses, found by bisection.
func (r *Remote) Vocabulary(ctx context.Context) (workload.Vocabulary, error) {
	plain, err := r.encode(ctx, "a", false)
	if err != nil {
		return workload.Vocabulary{}, err
	}
	all, err := r.encode(ctx, "a", true)
	if err != nil {
		return workload.Vocabulary{}, err
	}
	size, err := r.size(ctx)
	if err != nil {
		return workload.Vocabulary{}, err
	}
	v := workload.Vocabulary{Size: size, Added: max(len(all)-len(plain), 0), Allowed: make([]int32, size)}
	for i := range v.Allowed {
		v.Allowed[i] = int32(i)
	}
	return v, nil
}

func (r *Remote) size(ctx context.Context) (int, error) {
	if list, err := r.s.models(ctx); err == nil && list[0].Meta.Vocab > 0 && list[0].Meta.Vocab <= maxVocabulary {
		return list[0].Meta.Vocab, nil
	}
	known, over := 0, maxVocabulary // ids below known are accepted, ids from over on are refused
	for over-known > 1 {
		middle := (known + over) / 2
		_, err := r.decode(ctx, []int32{int32(middle)})
		switch {
		case err == nil:
			known = middle
		case isRefusal(err):
			over = middle
		default:
			return 0, err
		}
	}
	if known == maxVocabulary-1 {
		return 0, fmt.Errorf("bench: %s/detokenize takes any id, so the vocabulary's size is unknown: give --tokenizer", r.s.BaseURL)
	}
	return known + 1, nil
}
