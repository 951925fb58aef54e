package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/responses"
)

const ownerKey = "owner"

// ownerOf is who asks: the key, or everybody where there are none.
func ownerOf(c echo.Context) responses.Owner {
	o, _ := c.Get(ownerKey).(responses.Owner)
	return o
}

// storeError gives an error of the store a Kind.
func storeError(err error) error {
	var known *chat.Error
	var m missing
	if err == nil || errors.As(err, &known) || errors.As(err, &m) {
		return err
	}
	return &chat.Error{Kind: chat.Internal, Message: "The store of responses has failed.", Cause: err}
}

// put stores a response.
func (s *Server) put(own ownID, reply *openai.ResponsesReply, body []byte, input []responses.Item, events []byte, running bool) error {
	rec := responses.Record{
		ID: own.id, Background: reply.Background(), Running: running, Body: body, Input: input, Events: events,
	}
	for _, item := range reply.Output() {
		rec.Output = append(rec.Output, responses.Item(item))
	}
	return storeError(s.cfg.Responses.Put(own.owner, rec))
}

// history is what a response goes on from: the items of the one before it.
func (s *Server) history(owner responses.Owner, previous string) ([]responses.Item, error) {
	if previous == "" {
		return nil, nil
	}
	if s.tasks.find(ownID{owner, previous}) != nil {
		return nil, chat.Errorf(chat.Invalid, "previous_response_id", "Response with id '%s' has not ended yet: wait for its end.", previous)
	}
	input, output, err := s.cfg.Responses.Items(owner, previous)
	return append(input, output...), storeError(notFound(err, previous))
}

// notFound tells which id is not there.
func notFound(err error, id string) error {
	if errors.Is(err, responses.ErrNotFound) {
		return missing(id)
	}
	return err
}

// missing is the id of a response that there is not.
type missing string

func (m missing) Error() string { return "Response with id '" + string(m) + "' not found." }

// answerMissing answers for a response that there is not.
func answerMissing(c echo.Context, err error) error {
	var m missing
	if errors.As(err, &m) {
		return c.JSONBlob(openai.ResponseNotFound(string(m)))
	}
	return storeError(err)
}

// freshID reserves an id that none of the owner's responses has: the request's own,
// where it is free and can stand in a path, or a new one.
func (s *Server) freshID(c echo.Context, owner responses.Owner, r *openai.ResponsesRequest) (ownID, error) {
	own := ownID{owner, s.replyID(c, job{nil, &r.Ask, &r.Wire, "resp_"})}
	r.ItemBase = s.cfg.NewID()
	if !inPath(own.id) {
		own.id = "resp_" + s.cfg.NewID()
	}
	for {
		if s.tasks.take(own) {
			_, err := s.cfg.Responses.Get(owner, own.id)
			if errors.Is(err, responses.ErrNotFound) {
				return own, nil
			}
			s.tasks.remove(own)
			if err != nil {
				return own, storeError(err)
			}
		}
		own.id = "resp_" + s.cfg.NewID()
	}
}

// storing answers requests where responses are stored.
func (s *Server) storing(c echo.Context, svc *chat.Service, r *openai.ResponsesRequest) error {
	owner, store := ownerOf(c), s.cfg.Responses
	if r.Background && !r.Store {
		return chat.Errorf(chat.Invalid, "background", "`background` needs `store`: a response that nobody waits for is read from the store.")
	}
	items, err := s.history(owner, r.Previous)
	if err != nil {
		return answerMissing(c, err)
	}
	before := make([]json.RawMessage, len(items))
	for i, item := range items {
		before[i] = item.JSON
	}
	if err := r.Resolve(before, func(id string) (json.RawMessage, error) {
		text, err := store.Item(owner, id)
		if errors.Is(err, responses.ErrNotFound) {
			return nil, chat.Errorf(chat.NotFound, "input", "Item with id '%s' not found.", id)
		}
		return text, storeError(err)
	}); err != nil {
		return err
	}
	if !r.Store {
		return s.respond(c, svc, r, nil)
	}
	own, err := s.freshID(c, owner, r)
	if err != nil {
		return err
	}
	for _, item := range r.Items(own.id) {
		items = append(items, responses.Item(item))
	}
	r.Ask.ID = own.id
	if r.Background {
		return s.inBackground(c, svc, r, own, items)
	}
	defer s.tasks.remove(own)
	return s.respond(c, svc, r, func(reply *openai.ResponsesReply) {
		if err := s.put(own, reply, reply.Final(), items, nil, false); err != nil {
			s.cfg.Log.Error("response not stored", "id", own.id, "error", err.Error())
			reply.Unstored()
		}
	})
}

// stored hands the response that a path names to answer; where none are stored there
// is none.
func (s *Server) stored(answer func(echo.Context, ownID) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		own := ownID{ownerOf(c), pathParam(c, "id")}
		if s.cfg.Responses == nil {
			return c.JSONBlob(openai.ResponseNotFound(own.id))
		}
		return answer(c, own)
	}
}

// storedResponse answers with a response, or with the events of its stream.
func (s *Server) storedResponse(c echo.Context, own ownID) error {
	stream, n, err := s.resumption(c)
	if err != nil {
		return err
	}
	t := s.tasks.find(own)
	switch {
	case t != nil && stream && t.log != nil:
		return s.follow(c, t.log, n)
	case t != nil && stream:
		return notStreamed(own.id)
	case t != nil:
		return c.JSONBlob(http.StatusOK, t.now())
	}
	rec, err := s.cfg.Responses.Get(own.owner, own.id)
	if err != nil || !stream {
		if err != nil {
			return answerMissing(c, notFound(err, own.id))
		}
		return c.JSONBlob(http.StatusOK, rec.Body)
	}
	return s.replay(c, own, n)
}

// maxResumption bounds the body of a GET, in bytes.
const maxResumption = 4 << 10

// resumption reads whether and from where a stream is asked for. OpenAI's Go client
// asks for it in a body without a type.
func (s *Server) resumption(c echo.Context) (stream bool, n int, err error) {
	n = -1
	if c.Request().ContentLength > 0 {
		b, err := s.read(c, maxResumption)
		if err != nil {
			return false, 0, err
		}
		if stream, err = openai.DecodeResumption(b); err != nil {
			return false, 0, err
		}
	}
	if v := c.QueryParam("stream"); v != "" {
		if stream, err = strconv.ParseBool(v); err != nil {
			return false, 0, chat.Errorf(chat.Invalid, "stream", "`stream` must be true or false, got %q.", v)
		}
	}
	if v := c.QueryParam("starting_after"); v != "" {
		after, err := strconv.ParseInt(v, 10, 32)
		if n = int(after); err != nil || n < 0 {
			return false, 0, chat.Errorf(chat.Invalid, "starting_after", "`starting_after` must be the sequence number of an event, got %q.", v)
		}
	}
	return stream, n, nil
}

func notStreamed(id string) error {
	return chat.Errorf(chat.Invalid, "stream", "Response with id '%s' has no stream to go on with: it was not created with both `background` and `stream`.", id)
}

// replay writes the events of a response that has ended.
func (s *Server) replay(c echo.Context, own ownID, n int) error {
	b, err := s.cfg.Responses.Events(own.owner, own.id)
	if err != nil {
		return answerMissing(c, notFound(err, own.id))
	}
	if b == nil {
		return notStreamed(own.id)
	}
	w, leave := s.openStream(c), n+1
	return storeError(segments(b, func(events []byte) error {
		events, leave = behind(events, leave)
		return s.flush(w, events)
	}))
}

// cancelResponse ends a response in the background. One that has ended stays as it
// is.
func (s *Server) cancelResponse(c echo.Context, own ownID) error {
	if err := s.tasks.end(c.Request().Context(), own); err != nil {
		return err
	}
	rec, err := s.cfg.Responses.Get(own.owner, own.id)
	switch {
	case err != nil:
		return answerMissing(c, notFound(err, own.id))
	case !rec.Background:
		return c.JSONBlob(http.StatusBadRequest, openai.ErrorOf(http.StatusBadRequest, "invalid_request_error", "response_id", "Cannot cancel a synchronous response."))
	}
	return c.JSONBlob(http.StatusOK, rec.Body)
}

// deleteResponse takes a response away; one that runs is cancelled first.
func (s *Server) deleteResponse(c echo.Context, own ownID) error {
	if err := s.tasks.end(c.Request().Context(), own); err != nil {
		return err
	}
	if err := s.cfg.Responses.Delete(own.owner, own.id); err != nil {
		return answerMissing(c, notFound(err, own.id))
	}
	return c.JSONBlob(http.StatusOK, openai.ResponseDeleted(own.id))
}

// inputItems lists what a response answers.
func (s *Server) inputItems(c echo.Context, own ownID) error {
	input, _, err := s.cfg.Responses.Items(own.owner, own.id)
	if err != nil {
		return answerMissing(c, notFound(err, own.id))
	}
	list := make([]openai.StoredItem, len(input))
	for i, item := range input {
		list[i] = openai.StoredItem(item)
	}
	b, err := openai.ItemPage(list, c.QueryParams())
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, b)
}
