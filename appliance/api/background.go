package api

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/responses"
)

// background holds the tasks of background responses, for which no client waits.
type background struct {
	mu      sync.Mutex
	running map[ownID]*task
	taken   map[ownID]bool // ids of responses that are not completely stored yet
	left    sync.WaitGroup
	base    context.Context // cancelled by Server.Close
	stop    context.CancelFunc
}

// ownID is an owner and the id of one of its responses.
type ownID struct {
	owner responses.Owner
	id    string
}

// task makes one background response.
type task struct {
	own     ownID
	log     *eventLog // nil: not streamed
	cancel  context.CancelFunc
	done    chan struct{} // closed when the final response is stored
	context []responses.Item

	mu        sync.Mutex
	reply     *openai.ResponsesReply
	status    string
	cancelled bool // by the client
}

func newBackground() *background {
	b := &background{running: map[ownID]*task{}, taken: map[ownID]bool{}}
	b.base, b.stop = context.WithCancel(context.Background())
	return b
}

func (b *background) find(own ownID) *task {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running[own]
}

// take reserves an id. It returns false when another response has it.
func (b *background) take(own ownID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken[own] {
		return false
	}
	b.taken[own] = true
	return true
}

// add makes a task visible to requests for its response.
func (b *background) add(t *task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[t.own] = t
}

// remove releases an id and removes its task, if it has one.
func (b *background) remove(own ownID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, own)
	delete(b.taken, own)
}

// end cancels a response if it is running, and waits until its final state is stored.
func (b *background) end(ctx context.Context, own ownID) error {
	if t := b.find(own); t != nil {
		return t.end(ctx)
	}
	return nil
}

// startBackground starts a background response. It answers at once with the queued
// response, or streams its events. The id is released when the response is completely
// stored, or could not start.
func (s *Server) startBackground(c echo.Context, svc *chat.Service, r *openai.ResponsesRequest, own ownID, items []responses.Item) error {
	started := false
	defer func() {
		if !started {
			s.tasks.remove(own)
		}
	}()
	ctx, cancel := context.WithCancel(chat.Detach(s.tasks.base, c.Request().Context()))
	run, ended, err := s.start(ctx, c, svc, job{nil, &r.Ask, &r.Wire, "resp_"})
	if err != nil {
		cancel()
		return err
	}
	t := &task{own: own, cancel: cancel, done: make(chan struct{}), context: items, status: "queued"}
	decode := s.decoder(c, svc, run)
	if t.reply = r.Whole(run, decode); r.Wire.Stream {
		t.reply, t.log = r.Events(run, decode), newEventLog()
	}
	body, err := s.announce(t)
	if err != nil {
		cancel()
		ended()
		return err
	}
	m, leave := c.Get(meterKey).(*meter), c.Get(admissionKey).(*admission).keep()
	m.hold()
	v := visitOf(c)
	v.hold()
	started = true
	s.tasks.left.Go(func() {
		defer close(t.done) // after the deferred calls below
		defer m.end()
		defer v.end()
		defer leave()
		defer ended()
		defer cancel()
		s.work(ctx, t, run)
	})
	if t.log != nil {
		return s.follow(c, t.log, -1)
	}
	return c.JSONBlob(http.StatusOK, body)
}

// announce adds a task and stores its response with status queued. It adds the task
// first, so that a request which finds the stored response also finds its task.
func (s *Server) announce(t *task) (body []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	body = t.reply.Now(t.status)
	s.tasks.add(t)
	if err = s.put(t.own, t.reply, body, t.context, nil, true); err != nil {
		s.tasks.remove(t.own)
		t.log.add(nil, true)
		close(t.done)
	}
	return body, err
}

// work reads a run to its end and stores the response.
func (s *Server) work(ctx context.Context, t *task, run *chat.Run) {
	err := s.consume(ctx, t, run)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil && !t.reply.Aborted():
	case t.cancelled:
		t.reply.Cancel()
	case s.tasks.base.Err() != nil:
		t.reply.Fail(chat.Errorf(chat.Unavailable, "", "The server was stopped before the reply had ended."))
	case err != nil:
		e := chat.AsError(err)
		s.cfg.Log.Error("response in the background failed", "id", t.own.id, "error", e.Error())
		t.reply.Fail(e)
	}
	last := t.reply.End(nil)
	if err := s.put(t.own, t.reply, t.reply.Final(), t.context, t.log.encode(last), false); err != nil {
		s.cfg.Log.Error("response in the background is lost", "id", t.own.id, "error", err.Error())
	}
	s.tasks.remove(t.own)
	t.log.add(last, true)
}

// consume reads a run and appends its events to the log. A panic fails this response
// only.
func (s *Server) consume(ctx context.Context, t *task, run *chat.Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Log.Error("panic", "id", t.own.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = chat.Errorf(chat.Internal, "", "Internal server error.")
		}
	}()
	t.log.add(t.reply.Begin(nil), false)
	for started := false; ; started = true {
		deltas, err := run.Next(ctx)
		if deltas == nil || err != nil {
			return err
		}
		if buf := t.take(deltas, !started); len(buf) > 0 {
			t.log.add(buf, false)
		}
	}
}

// take adds deltas to the reply and returns their events.
func (t *task) take(deltas []chat.Delta, first bool) (buf []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first {
		t.status = "in_progress"
		buf = t.reply.InProgress(buf)
	}
	for _, d := range deltas {
		buf = t.reply.Add(buf, d)
	}
	return buf
}

// now returns the response's current state as JSON.
func (t *task) now() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reply.Now(t.status)
}

// end cancels a task and waits until its final state is stored.
func (t *task) end(ctx context.Context) error {
	t.mu.Lock()
	t.cancelled = true
	t.mu.Unlock()
	t.cancel()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow streams the events after sequence number n as they are added to the log.
// Each sequence number is one event.
func (s *Server) follow(c echo.Context, l *eventLog, n int) error {
	w, ctx := s.openStream(c), c.Request().Context()
	for at, leave := 0, n+1; ; {
		events, ended, more, err := l.from(at)
		if err != nil {
			return storeError(err)
		}
		at += len(events)
		events, leave = skipEvents(events, leave)
		if err := s.flush(w, events); err != nil || ended {
			return err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close stops the background responses. It waits until each is stored with status
// failed.
func (s *Server) Close() {
	s.tasks.stop()
	s.tasks.left.Wait()
}
