package chat

import (
	"context"
	"encoding/json"
)

// ScoreAsk asks how well texts go together, before it is checked.
type ScoreAsk struct {
	PoolAsk // Task, Chat, Inputs and Dimensions are not read
	// Queries and Documents are paired one by one; a single query goes with every document.
	Queries, Documents []string
	// Template came with the request and needs trust; "": the settings'.
	Template       string
	TemplateKwargs map[string]json.RawMessage
}

// Score gives a number for each pair: the cosine of two embeddings, or what a classifier of
// one class makes of both texts. Its errors are *Error.
func (s *Service) Score(ctx context.Context, a ScoreAsk, set *Settings) (*Pooled, error) {
	model, err := set.Name(a.Model)
	if err != nil {
		return nil, err
	}
	if _, err := s.task(TaskScore); err != nil {
		return nil, err
	}
	if err := checkPairs(&a, set); err != nil {
		return nil, err
	}
	out, err := s.crossed(ctx, &a, set)
	if err != nil {
		return nil, err
	}
	out.Model = model
	return out, nil
}

// maxPairBytes bounds the texts of all pairs: a query is repeated in each of its pairs.
const maxPairBytes = 32 << 20

func checkPairs(a *ScoreAsk, set *Settings) error {
	q, d := len(a.Queries), len(a.Documents)
	var bytes int
	for i, document := range a.Documents {
		if q > 0 {
			bytes += len(a.Queries[a.query(min(i, q-1))]) + len(document)
		}
	}
	switch {
	case bytes > maxPairBytes:
		return invalid("text_2", "the pairs of one request may have at most %d bytes together, each with its query, got %d.", maxPairBytes, bytes)
	case q == 0:
		return Errorf(Malformed, "text_1", "At least one text element must be given.")
	case d == 0:
		return Errorf(Malformed, "text_2", "At least one text_pair element must be given.")
	case q != 1 && q != d:
		return Errorf(Malformed, "text_1", "Input lengths must be either 1:1, 1:N or N:N, got %d:%d.", q, d)
	case d > maxInputs:
		return invalid("text_2", "one request may have at most %d pairs, got %d.", maxInputs, d)
	case a.Template != "" && !set.TrustRequestChatTemplate:
		return checkConversation(&Ask{Chat: &Conversation{Messages: []Message{{}}, Template: a.Template}}, set)
	}
	return nil
}

func (a *ScoreAsk) query(i int) int { return min(i, len(a.Queries)-1) }

// crossed is the number of each pair.
func (s *Service) crossed(ctx context.Context, a *ScoreAsk, set *Settings) (*Pooled, error) {
	ask := a.PoolAsk
	ask.Chat, ask.Inputs, ask.Dimensions = nil, nil, nil
	if s.cfg.Pooling.Task == TaskEmbed {
		return s.angles(ctx, a, ask, set)
	}
	ask.Task = TaskClassify
	ask.pairs = len(a.Documents)
	ask.pair = func(ctx context.Context, i int) (string, error) {
		return s.pair(ctx, a, a.Queries[a.query(i)], a.Documents[i], set)
	}
	return s.Pool(ctx, ask, set)
}

// angles are the cosines of embeddings, each text being computed once.
func (s *Service) angles(ctx context.Context, a *ScoreAsk, ask PoolAsk, set *Settings) (*Pooled, error) {
	ask.Task = TaskEmbed
	for _, list := range [][]string{a.Queries, a.Documents} {
		for _, text := range list {
			ask.Inputs = append(ask.Inputs, Prompt{Text: text})
		}
	}
	out, err := s.Pool(ctx, ask, set)
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

// pair is the text of a query and a document: a template of messages with these roles, or
// without one both texts end to end, as vLLM does for models that rank by a token.
func (s *Service) pair(ctx context.Context, a *ScoreAsk, query, document string, set *Settings) (string, error) {
	if a.Template == "" && !set.ScoreTemplate {
		return query + document, nil
	}
	return s.render(ctx, &Conversation{
		Messages: []Message{{Role: "query", Text: query, HasContent: true}, {Role: "document", Text: document, HasContent: true}},
		Template: a.Template, TemplateKwargs: a.TemplateKwargs,
	}, set)
}
