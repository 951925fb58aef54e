package openai

import "vapp.dev/appliance/chat"

// usage counts tokens.
type usage struct {
	PromptTokens     int            `json:"prompt_tokens"`
	TotalTokens      int            `json:"total_tokens"`
	CompletionTokens int            `json:"completion_tokens"`
	Details          *promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

func usageOf(u chat.Usage) *usage {
	out := &usage{PromptTokens: u.Prompt, CompletionTokens: u.Completion, TotalTokens: u.Prompt + u.Completion}
	if u.ReportCached && u.Cached > 0 {
		out.Details = &promptDetails{u.Cached}
	}
	return out
}
