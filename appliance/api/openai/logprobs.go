package openai

import (
	"slices"
	"strconv"

	"vapp.dev/appliance/chat"
)

// chatLogprobList holds the logprobs of a chat choice.
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

// entry converts a logprob. Its bytes are always the token's own, so that the joined
// bytes are the text even where a character has several tokens.
func (w *Wire) entry(id int32, text string, own []byte, p float32) topLogprob {
	t := topLogprob{Token: w.name(id, text), Logprob: p, Bytes: make([]int, len(own))}
	for i, b := range own {
		t.Bytes[i] = int(b)
	}
	return t
}

// chat converts the logprobs of a delta to the form of chats; nil for none.
func (w *Wire) chat(list []chat.TokenLogprob) *chatLogprobList {
	if len(list) == 0 {
		return nil
	}
	out := &chatLogprobList{}
	for _, l := range list {
		c := chatLogprob{topLogprob: w.entry(l.Token, l.Text, l.Bytes, l.Logprob), Top: []topLogprob{}}
		for _, t := range topK(l.Top, w.TopLogprobs) {
			c.Top = append(c.Top, w.entry(t.Token, t.Text, t.Bytes, t.Logprob))
		}
		out.Content = append(out.Content, c)
	}
	return out
}

// topK returns the first k alternatives; all for −1.
func topK(top []chat.TopLogprob, k int) []chat.TopLogprob {
	if k < 0 || k > len(top) {
		return top
	}
	return top[:k]
}

// textLogprobs holds the logprobs of a completion choice in lists of equal length.
type textLogprobs struct {
	TextOffset    []int                `json:"text_offset"`
	TokenLogprobs []*float32           `json:"token_logprobs"`
	Tokens        []string             `json:"tokens"`
	TopLogprobs   []map[string]float32 `json:"top_logprobs"`
}

// text converts the logprobs of a delta to the form of completions.
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
		for _, t := range slices.Backward(topK(l.Top, w.TopLogprobs)) {
			top[w.name(t.Token, t.Text)] = t.Logprob // for tokens with the same text the best remains
		}
		top[name] = l.Logprob
		out.TokenLogprobs = append(out.TokenLogprobs, &l.Logprob)
		out.TopLogprobs = append(out.TopLogprobs, top)
	}
	return out
}

// promptLogprob is the entry of one token id in prompt_logprobs.
type promptLogprob struct {
	Logprob float32 `json:"logprob"`
	Rank    int32   `json:"rank"`
	Decoded string  `json:"decoded_token"`
}

// prompt converts prompt_logprobs to a list of one map for each token. The first
// token, which has no logprob, is null.
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
		for rank, t := range topK(l.Top, *w.PromptLogprobs) {
			out[i][strconv.Itoa(int(t.Token))] = promptLogprob{t.Logprob, int32(rank + 1), t.Text}
		}
		out[i][strconv.Itoa(int(l.Token))] = promptLogprob{l.Logprob, l.Rank, l.Text}
	}
	return out
}
