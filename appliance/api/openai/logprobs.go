package openai

import (
	"slices"
	"strconv"

	"vapp.dev/appliance/chat"
)

// chatLogprobList is logprobs of a chat choice.
type chatLogprobList struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	topLogprob
	Top []topLogprob `json:"top_logprobs"`
}

type topLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func (w *Wire) name(id int32, text string) string {
	if w.TokensAsIDs {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return text
}

// entry converts a logprob. Its bytes are the token's own, whatever its name is: joined they
// are the text, also where tokens are parts of a character.
func (w *Wire) entry(id int32, text string, own []byte, p float32) topLogprob {
	t := topLogprob{Token: w.name(id, text), Logprob: p, Bytes: make([]int, len(own))}
	for i, b := range own {
		t.Bytes[i] = int(b)
	}
	return t
}

// chat converts the logprobs of a delta; nil when none were asked for.
func (w *Wire) chat(list []chat.TokenLogprob) *chatLogprobList {
	if len(list) == 0 {
		return nil
	}
	out := &chatLogprobList{}
	for _, l := range list {
		c := chatLogprob{topLogprob: w.entry(l.Token, l.Text, l.Bytes, l.Logprob), Top: []topLogprob{}}
		for _, t := range cut(l.Top, w.TopLogprobs) {
			c.Top = append(c.Top, w.entry(t.Token, t.Text, t.Bytes, t.Logprob))
		}
		out.Content = append(out.Content, c)
	}
	return out
}

// cut keeps the k best; -1 keeps all.
func cut(top []chat.TopLogprob, k int) []chat.TopLogprob {
	if k < 0 || k > len(top) {
		return top
	}
	return top[:k]
}

// textLogprobs is logprobs of a completion choice: lists of equal length.
type textLogprobs struct {
	TextOffset    []int                `json:"text_offset"`
	TokenLogprobs []*float32           `json:"token_logprobs"`
	Tokens        []string             `json:"tokens"`
	TopLogprobs   []map[string]float32 `json:"top_logprobs"`
}

// text converts the logprobs of a delta.
func (w *Wire) text(list []chat.TokenLogprob) *textLogprobs {
	if len(list) == 0 {
		return nil
	}
	out := &textLogprobs{}
	for _, l := range list {
		name := w.name(l.Token, l.Text)
		out.TextOffset = append(out.TextOffset, l.Offset)
		out.Tokens = append(out.Tokens, name)
		if !l.Known {
			out.TokenLogprobs = append(out.TokenLogprobs, nil)
			out.TopLogprobs = append(out.TopLogprobs, nil)
			continue
		}
		top := map[string]float32{}
		for _, t := range slices.Backward(cut(l.Top, w.TopLogprobs)) {
			top[w.name(t.Token, t.Text)] = t.Logprob // of tokens with the same text the best counts
		}
		top[name] = l.Logprob
		out.TokenLogprobs = append(out.TokenLogprobs, &l.Logprob)
		out.TopLogprobs = append(out.TopLogprobs, top)
	}
	return out
}

// promptLogprob is one entry of prompt_logprobs, by token id.
type promptLogprob struct {
	Logprob float32 `json:"logprob"`
	Rank    int32   `json:"rank"`
	Decoded string  `json:"decoded_token"`
}

// prompt converts prompt_logprobs: null first, then a map a token.
func (w *Wire) prompt(list []chat.TokenLogprob) []map[string]promptLogprob {
	if w.PromptLogprobs == nil || len(list) == 0 {
		return nil
	}
	out := make([]map[string]promptLogprob, len(list))
	for i, l := range list {
		if !l.Known {
			continue
		}
		out[i] = map[string]promptLogprob{}
		for rank, t := range cut(l.Top, *w.PromptLogprobs) {
			out[i][strconv.Itoa(int(t.Token))] = promptLogprob{t.Logprob, int32(rank + 1), t.Text}
		}
		out[i][strconv.Itoa(int(l.Token))] = promptLogprob{l.Logprob, l.Rank, l.Text}
	}
	return out
}
