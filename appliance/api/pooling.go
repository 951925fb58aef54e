package api

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/chat/pooling"
)

// poolingRoutes returns the routes of pooling models.
func (s *Server) poolingRoutes() []route {
	const (
		tag   = "Pooling"
		input = `{"input":["Say hello.","Say goodbye."]}`
		pair  = `{"text_1":"Which one is a fruit?","text_2":["An apple.","A brick."]}`
		rank  = `{"query":"Which one is a fruit?","documents":["A brick.","An apple."]}`
	)
	score := describe(tag, "Score the similarity of texts", openai.ScoreShape(), pair)
	rerank := describe(tag, "Rank documents by their relevance to a query", openai.RerankShape(), rank)
	return []route{
		{"POST", "/v1/embeddings", s.ready(s.embeddings), describe(tag, "Embed texts", openai.EmbeddingShape(), input)},
		{"POST", "/pooling", s.ready(s.pooling), describe(tag, "Any task of a pooling model", openai.PoolingShape(), input)},
		{"POST", "/classify", s.ready(s.classify), describe(tag, "Classify texts", openai.ClassifyShape(), input)},
		{"POST", "/score", s.ready(s.score), score},
		{"POST", "/v1/score", s.ready(s.score), score},
		{"POST", "/rerank", s.ready(s.rerank), rerank},
		{"POST", "/v1/rerank", s.ready(s.rerank), rerank},
		{"POST", "/v2/rerank", s.ready(s.rerank), rerank},
	}
}

// apis lists the routes that only some models serve: vLLM's name of the API, and the
// task that the model needs ("": generate). A row includes the paths below its path.
var apis = []struct{ path, name, task string }{
	{"/v1/chat/completions", "Chat Completions API", ""},
	{"/v1/completions", "Completions API", ""},
	{"/v1/responses", "Responses API", ""},
	{messagesPath, "Messages API", ""},
	{"/inference/v1/generate", "Generate API", ""},
	{"/v1/embeddings", "Embeddings API", chat.TaskEmbed},
	{"/pooling", "Pooling API", "pooling"},
	{"/classify", "Classification API", chat.TaskClassify},
	{"/score", "Score API", chat.TaskScore},
	{"/v1/score", "Score API", chat.TaskScore},
	{"/rerank", "Rerank (Score) API", chat.TaskScore},
	{"/v1/rerank", "Rerank (Score) API", chat.TaskScore},
	{"/v2/rerank", "Rerank (Score) API", chat.TaskScore},
}

// checkTask returns an error for a route whose task the model does not have.
func checkTask(path string, svc *chat.Service) error {
	for _, a := range apis {
		if path != a.path && !strings.HasPrefix(path, a.path+"/") {
			continue
		}
		tasks := svc.Tasks()
		switch has := strings.Join(tasks, ", "); {
		case a.task == "" && tasks != nil:
			return chat.Errorf(chat.Unsupported, "", "The model does not support %s: its tasks are %s, not generate.", a.name, has)
		case a.task != "" && tasks == nil:
			return chat.Errorf(chat.Unsupported, "", "The model does not support %s: its task is generate, not %s.", a.name, a.task)
		case a.task != "" && a.task != "pooling" && !strings.Contains(", "+has+",", ", "+a.task+","):
			return chat.Errorf(chat.Unsupported, "", "The model does not support %s: its tasks are %s, not %s.", a.name, has, a.task)
		}
		return nil
	}
	return nil
}

func (s *Server) embeddings(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeEmbedding)
	if err != nil {
		return err
	}
	p, err := s.pool(c, svc, &r.Ask, r.Wire.Unknown, "embd-")
	if err != nil {
		return err
	}
	return vectors(c, r.Wire.Embeddings(p))
}

func (s *Server) pooling(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodePooling)
	if err != nil {
		return err
	}
	p, err := s.pool(c, svc, &r.Ask, r.Wire.Unknown, "pool-")
	if err != nil {
		return err
	}
	return vectors(c, r.Wire.Pooling(p))
}

func (s *Server) classify(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeClassify)
	if err != nil {
		return err
	}
	p, err := s.pool(c, svc, &r.Ask, r.Wire.Unknown, "classify-")
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, openai.Classes(p, pooling.New(svc).Labels()))
}

func (s *Server) score(c echo.Context, svc *chat.Service) error {
	return s.scoreWith(c, svc, openai.DecodeScore, "score-", func(_ *openai.ScoreRequest, p *pooling.Output) []byte { return openai.Scores(p) })
}

func (s *Server) rerank(c echo.Context, svc *chat.Service) error {
	return s.scoreWith(c, svc, openai.DecodeRerank, "rerank-", (*openai.ScoreRequest).Ranking)
}

func (s *Server) scoreWith(c echo.Context, svc *chat.Service, decode func([]byte) (*openai.ScoreRequest, error), prefix string, reply func(*openai.ScoreRequest, *pooling.Output) []byte) error {
	r, err := decodeBody(c, s.body, decode)
	if err != nil {
		return err
	}
	p, err := s.open(c, &r.Ask.ID, r.Unknown, prefix, func() (*pooling.Output, error) {
		return pooling.New(svc).Score(c.Request().Context(), r.Ask, &settings(c).Chat)
	})
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, reply(r, p))
}

func (s *Server) pool(c echo.Context, svc *chat.Service, a *pooling.Params, unknown []string, prefix string) (*pooling.Output, error) {
	return s.open(c, &a.ID, unknown, prefix, func() (*pooling.Output, error) {
		return pooling.New(svc).Pool(c.Request().Context(), *a, &settings(c).Chat)
	})
}

// open sets a request's id, runs answer, and counts the tokens used.
func (s *Server) open(c echo.Context, id *string, unknown []string, prefix string, answer func() (*pooling.Output, error)) (*pooling.Output, error) {
	s.applyWire(c, &openai.Wire{Unknown: unknown})
	own := job{ask: &chat.RequestParams{ID: *id}, prefix: prefix}
	*id = s.replyID(c, own)
	p, err := answer()
	if err != nil {
		return nil, err
	}
	now := s.cfg.Now()
	s.completions.add(now)
	c.Get(meterKey).(*meter).charge(now, settings(c).PerKey, p.Usage.Prompt)
	return p, nil
}

// vectors answers with JSON or bytes.
func vectors(c echo.Context, b openai.PoolBody) error {
	if b.JSON != nil {
		return c.JSONBlob(http.StatusOK, b.JSON)
	}
	if b.Metadata != nil {
		c.Response().Header().Set("Metadata", string(b.Metadata))
	}
	return c.Blob(http.StatusOK, echo.MIMEOctetStream, b.Bytes)
}
