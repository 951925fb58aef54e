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

// ownerOf returns the owner of a request's responses: its key, or the zero Owner
// shared by all clients when there are no keys.
func ownerOf(c echo.Context) responses.Owner {
	o, _ := c.Get(ownerKey).(responses.Owner)
	return o
}

// storeError returns an error of the store as an internal *chat.Error.
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

// history returns the items of the previous response: its input, then its output.
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

// notFound adds the id to responses.ErrNotFound.
func notFound(err error, id string) error {
	if errors.Is(err, responses.ErrNotFound) {
		return missing(id)
	}
	return err
}

// missing is the error for the id of a response that does not exist.
type missing string

func (m missing) Error() string { return "Response with id '" + string(m) + "' not found." }

// answerMissing answers 404 for a missing response, and returns other errors.
func answerMissing(c echo.Context, err error) error {
	var m missing
	if errors.As(err, &m) {
		return c.JSONBlob(openai.ResponseNotFound(string(m)))
	}
	return storeError(err)
}

// freshID reserves an id that none of the owner's responses has: the request's own id
// if it is free and valid in a path, else a new one.
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

// respondStored answers a request on a server that stores responses.
func (s *Server) respondStored(c echo.Context, svc *chat.Service, r *openai.ResponsesRequest) error {
	owner, store := ownerOf(c), s.cfg.Responses
	if r.Background && !r.Store {
		return chat.Errorf(chat.Invalid, "background", "`background` needs `store`: the client reads a background response from the store.")
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
		return s.startBackground(c, svc, r, own, items)
	}
	defer s.tasks.remove(own)
	return s.respond(c, svc, r, func(reply *openai.ResponsesReply) {
		if err := s.put(own, reply, reply.Final(), items, nil, false); err != nil {
			s.cfg.Log.Error("response not stored", "id", own.id, "error", err.Error())
			reply.MarkUnstored()
		}
	})
}

// withStored passes the response id of the path to answer. On a server that stores no
// responses it answers 404.
func (s *Server) withStored(answer func(echo.Context, ownID) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		own := ownID{ownerOf(c), pathParam(c, "id")}
		if s.cfg.Responses == nil {
			return c.JSONBlob(openai.ResponseNotFound(own.id))
		}
		return answer(c, own)
	}
}

// storedResponse answers with a stored response or the events of its stream.
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
		return notStreamedError(own.id)
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

// maxResumption is the maximum size of a GET request's body, in bytes.
const maxResumption = 4 << 10

// resumption reads whether a stream is requested, and after which event: n is −1 for
// all events. OpenAI's Go client sends stream in a body without a Content-Type.
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

func notStreamedError(id string) error {
	return chat.Errorf(chat.Invalid, "stream", "Response with id '%s' has no stream to continue: it was not created with both `background` and `stream`.", id)
}

// replay streams the stored events of a completed response after sequence number n.
func (s *Server) replay(c echo.Context, own ownID, n int) error {
	b, err := s.cfg.Responses.Events(own.owner, own.id)
	if err != nil {
		return answerMissing(c, notFound(err, own.id))
	}
	if b == nil {
		return notStreamedError(own.id)
	}
	w, leave := s.openStream(c), n+1
	return storeError(segments(b, func(events []byte) error {
		events, leave = skipEvents(events, leave)
		return s.flush(w, events)
	}))
}

// cancelResponse cancels a background response. It does not change a completed one.
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

// deleteResponse deletes a response. It first cancels one that is running.
func (s *Server) deleteResponse(c echo.Context, own ownID) error {
	if err := s.tasks.end(c.Request().Context(), own); err != nil {
		return err
	}
	if err := s.cfg.Responses.Delete(own.owner, own.id); err != nil {
		return answerMissing(c, notFound(err, own.id))
	}
	return c.JSONBlob(http.StatusOK, openai.DeletionBody(own.id))
}

// inputItems lists the input items of a response, those of previous responses included.
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
