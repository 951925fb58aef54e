package pooling

import (
	"context"
	"encoding/json"

	"vapp.dev/appliance/chat"
)

// ScoreParams are the parameters of a request for the similarity of texts, not checked yet.
type ScoreParams struct {
	Params // Task, Chat, Inputs and Dimensions are not used
	// Queries and Documents are paired one by one; a single query goes with every document.
	Queries, Documents []string
	// Template came with the request, which the settings must allow; "": the settings'.
	Template       string
	TemplateKwargs map[string]json.RawMessage
}

// Score returns a number per pair: the cosine similarity of two embeddings, or the result of
// a classifier with one class for both texts. Its errors are *chat.Error.
func (s *Service) Score(ctx context.Context, a ScoreParams, set *chat.Settings) (*Output, error) {
	model, err := set.Name(a.Model)
	if err != nil {
		return nil, err
	}
	if _, err := s.task(chat.TaskScore); err != nil {
		return nil, err
	}
	if err := checkPairs(&a, set); err != nil {
		return nil, err
	}
	out, err := s.scores(ctx, &a, set)
	if err != nil {
		return nil, err
	}
	out.Model = model
	return out, nil
}

// maxPairBytes bounds the texts of all pairs; a query counts in each of its pairs.
const maxPairBytes = 32 << 20

// checkPairs refuses texts that cannot be paired, or too many of them.
func checkPairs(a *ScoreParams, set *chat.Settings) error {
	q, d := len(a.Queries), len(a.Documents)
	var bytes int
	for i, document := range a.Documents {
		if q > 0 {
			bytes += len(a.Queries[a.query(min(i, q-1))]) + len(document)
		}
	}
	switch {
	case bytes > maxPairBytes:
		return chat.Errorf(chat.Invalid, "text_2", "the pairs of one request may have at most %d bytes together, each with its query, got %d.", maxPairBytes, bytes)
	case q == 0:
		return chat.Errorf(chat.Malformed, "text_1", "At least one text element must be given.")
	case d == 0:
		return chat.Errorf(chat.Malformed, "text_2", "At least one text_pair element must be given.")
	case q != 1 && q != d:
		return chat.Errorf(chat.Malformed, "text_1", "Input lengths must be either 1:1, 1:N or N:N, got %d:%d.", q, d)
	case d > maxInputs:
		return chat.Errorf(chat.Invalid, "text_2", "one request may have at most %d pairs, got %d.", maxInputs, d)
	case a.Template != "" && !set.TrustRequestChatTemplate:
		return chat.CheckConversation(&chat.Conversation{Messages: []chat.Message{{}}, Template: a.Template}, set)
	}
	return nil
}

// query returns the index of the query of pair i.
func (a *ScoreParams) query(i int) int { return min(i, len(a.Queries)-1) }

// scores returns the number of each pair.
func (s *Service) scores(ctx context.Context, a *ScoreParams, set *chat.Settings) (*Output, error) {
	p := a.Params
	p.Chat, p.Inputs, p.Dimensions = nil, nil, nil
	if s.text.Pooling().Task == chat.TaskEmbed {
		return s.similarities(ctx, a, p, set)
	}
	p.Task = chat.TaskClassify
	p.pairs = len(a.Documents)
	p.pair = func(ctx context.Context, i int) (string, error) {
		return s.pair(ctx, a, a.Queries[a.query(i)], a.Documents[i], set)
	}
	return s.Pool(ctx, p, set)
}

// similarities returns the cosine similarities of embeddings. Each text is computed once.
func (s *Service) similarities(ctx context.Context, a *ScoreParams, p Params, set *chat.Settings) (*Output, error) {
	p.Task = chat.TaskEmbed
	for _, list := range [][]string{a.Queries, a.Documents} {
		for _, text := range list {
			p.Inputs = append(p.Inputs, chat.Prompt{Text: text})
		}
	}
	out, err := s.Pool(ctx, p, set)
	if err != nil {
		return nil, err
	}
	queries, documents := out.Data[:len(a.Queries)], out.Data[len(a.Queries):]
	scores := make([]Vectors, len(documents))
	for i, d := range documents {
		scores[i].Values = []float32{cosine(queries[a.query(i)].Values, d.Values)}
	}
	out.Data = scores
	return out, nil
}

// pair returns the text of a query and a document: rendered by the chat template, with
// messages of the roles query and document, or concatenated if there is none, as vLLM does
// for models that rank by a token.
func (s *Service) pair(ctx context.Context, a *ScoreParams, query, document string, set *chat.Settings) (string, error) {
	if a.Template == "" && !set.ScoreTemplate {
		return query + document, nil
	}
	return s.text.RenderText(ctx, &chat.Conversation{
		Messages: []chat.Message{{Role: "query", Text: query, HasContent: true}, {Role: "document", Text: document, HasContent: true}},
		Template: a.Template, TemplateKwargs: a.TemplateKwargs,
	}, set)
}
