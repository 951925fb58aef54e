package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// generateTokens handles POST /inference/v1/generate: token ids in, token ids out.
func (s *Server) generateTokens(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeGenerate)
	if err != nil {
		return err
	}
	return s.generate(c, svc, job{r, &r.Ask, &r.Wire, "generate-tokens-"})
}

func (s *Server) renderChat(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeChat)
	if err != nil {
		return err
	}
	return s.render(c, svc, job{r, &r.Ask, &r.Wire, "chatcmpl-"}, r.RenderReply)
}

func (s *Server) renderCompletion(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeCompletion)
	if err != nil {
		return err
	}
	return s.render(c, svc, job{r, &r.Ask, &r.Wire, "cmpl-"}, r.RenderReply)
}

// render answers with the request that generateTokens would take.
func (s *Server) render(c echo.Context, svc *chat.Service, j job, write func([]chat.RenderedRequest) []byte) error {
	s.applyWire(c, j.wire)
	j.ask.ID = s.replyID(c, j)
	req, err := chat.NewRequest(*j.ask, &settings(c).Chat)
	if err != nil {
		return err
	}
	ready, err := svc.Prepare(c.Request().Context(), req)
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, write(ready))
}

// batch answers several conversations in one reply.
func (s *Server) batch(c echo.Context, svc *chat.Service) error {
	r, err := decodeBody(c, s.body, openai.DecodeBatch)
	if err != nil {
		return err
	}
	set, ctx := settings(c), c.Request().Context()
	if n := len(r.Requests); set.Chat.MaxSequences > 0 && n > set.Chat.MaxSequences {
		return chat.TooManySequences(n, n, 1, set.Chat.MaxSequences)
	}
	id := s.replyID(c, job{ask: &r.Requests[0].Ask, prefix: "chatcmpl-"})
	var runs []*chat.Run
	for _, one := range r.Requests {
		s.applyWire(c, &one.Wire)
		one.Ask.ID = id
		req, err := chat.NewRequest(one.Ask, &set.Chat)
		if err != nil {
			return err
		}
		run, err := svc.Start(ctx, req)
		if err != nil {
			return err
		}
		one.Ask.Chat = nil
		defer run.Close()
		defer s.countUsage(set, c.Get(meterKey).(*meter), run)
		runs = append(runs, run)
	}
	reservationOf(c).release()
	var replies []chat.Reply
	for _, run := range runs {
		one, err := wait(ctx, run)
		if err != nil {
			return err
		}
		replies = append(replies, one...)
	}
	return c.JSONBlob(http.StatusOK, r.Reply(runs, replies))
}
