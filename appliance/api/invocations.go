package api

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/chat"
)

// bodyKey is the context key of a body that was already read.
const bodyKey = "body"

// invocable is a handler that /invocations dispatches to.
type invocable struct {
	request string   // vLLM's name for its body
	needs   []string // fields that must be present and not null; "a|b": one of them
	answer  func(echo.Context, *chat.Service) error
}

// invocables returns the handlers for the model's tasks, in the order in which they
// are tried.
func (s *Server) invocables(tasks []string) []invocable {
	if tasks == nil {
		return []invocable{
			{"ChatCompletionRequest", []string{"messages"}, s.chat},
			{"CompletionRequest", []string{"prompt|prompt_embeds"}, s.completion},
		}
	}
	input := []string{"input|messages"}
	var out []invocable
	if slices.Contains(tasks, chat.TaskEmbed) {
		out = append(out, invocable{"EmbeddingRequest", input, s.embeddings})
	}
	if slices.Contains(tasks, chat.TaskClassify) {
		out = append(out, invocable{"ClassificationRequest", input, s.classify})
	}
	if slices.Contains(tasks, chat.TaskScore) {
		out = append(out, invocable{"RerankRequest", []string{"query", "documents"}, s.rerank},
			invocable{"ScoreRequest", []string{"text_1|data_1|queries", "text_2|data_2|documents|items"}, s.score})
	}
	return append(out, invocable{"PoolingRequest", input, s.pooling})
}

// invocations handles SageMaker's single route for all tasks.
func (s *Server) invocations(c echo.Context, svc *chat.Service) error {
	b, err := s.body(c)
	if err != nil {
		return err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil && !json.Valid(b) {
		return chat.Errorf(chat.Malformed, "", "JSON decode error: %v.", err)
	} // a body that is not an object fits no handler
	c.Set(bodyKey, b)
	var names []string
	for _, i := range s.invocables(svc.Tasks()) {
		if i.fits(raw) {
			return i.answer(c, svc)
		}
		names = append(names, "'"+i.request+"'")
	}
	return chat.Errorf(chat.Malformed, "", "Cannot find suitable handler for request. Expected one of: [%s]", strings.Join(names, ", "))
}

func (i invocable) fits(raw map[string]json.RawMessage) bool {
	for _, need := range i.needs {
		found := false
		for name := range strings.SplitSeq(need, "|") {
			found = found || raw[name] != nil && string(raw[name]) != "null"
		}
		if !found {
			return false
		}
	}
	return true
}
