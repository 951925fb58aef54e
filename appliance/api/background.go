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

// background are the responses that are made while no client waits.
type background struct {
	mu      sync.Mutex
	running map[ownID]*task
	taken   map[ownID]bool // ids of responses that are not stored in full yet
	left    sync.WaitGroup
	base    context.Context // ends when the server does
	stop    context.CancelFunc
}

// ownID is the id of a response among its owner's.
type ownID struct {
	owner responses.Owner
	id    string
}

// task is one of them.
type task struct {
	own     ownID
	log     *eventLog // nil: not streamed
	cancel  context.CancelFunc
	done    chan struct{} // closed when the response is stored as it ended
	context []responses.Item

	mu        sync.Mutex
	reply     *openai.ResponsesReply
	status    string
	cancelled bool // by its owner
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

// take reserves an id; false: another response has it.
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

// remove ends the reservation of an id, and removes its task if there is one.
func (b *background) remove(own ownID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, own)
	delete(b.taken, own)
}

// end cancels a response, if it runs, and waits until it is stored so.
func (b *background) end(ctx context.Context, own ownID) error {
	if t := b.find(own); t != nil {
		return t.end(ctx)
	}
	return nil
}

// inBackground starts a response and answers at once, or follows its stream. It ends
// the reservation of the id when the response is stored in full, or is not started.
func (s *Server) inBackground(c echo.Context, svc *chat.Service, r *openai.ResponsesRequest, own ownID, items []responses.Item) error {
	started := false
	defer func() {
		if !started {
			s.tasks.remove(own)
		}
	}()
	ctx, cancel := context.WithCancel(chat.WithClient(s.tasks.base, chat.Client(c.Request().Context())))
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
	started = true
	s.tasks.left.Go(func() {
		defer close(t.done) // when all of it is over
		defer m.end()
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

// announce adds a task and stores its response as queued. The task is added first:
// a request that finds the response in the store finds its task too.
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

// work reads a run to its end and stores what came.
func (s *Server) work(ctx context.Context, t *task, run *chat.Run) {
	err := s.listen(ctx, t, run)
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
	if err := s.put(t.own, t.reply, t.reply.Final(), t.context, t.log.stored(last), false); err != nil {
		s.cfg.Log.Error("response in the background is lost", "id", t.own.id, "error", err.Error())
	}
	s.tasks.remove(t.own)
	t.log.add(last, true)
}

// listen reads a run and tells the log. A panic is an error of this response alone.
func (s *Server) listen(ctx context.Context, t *task, run *chat.Run) (err error) {
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

// take adds what has come.
func (t *task) take(deltas []chat.Delta, first bool) (buf []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first {
		t.status = "in_progress"
		buf = t.reply.Started(buf)
	}
	for _, d := range deltas {
		buf = t.reply.Add(buf, d)
	}
	return buf
}

// now is the response as it is.
func (t *task) now() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reply.Now(t.status)
}

// end cancels a response and waits until it is stored so.
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

// follow writes the events of a log behind sequence number n, as they come. Each
// number stands for one event.
func (s *Server) follow(c echo.Context, l *eventLog, n int) error {
	w, ctx := s.openStream(c), c.Request().Context()
	for at, leave := 0, n+1; ; {
		events, ended, more, err := l.from(at)
		if err != nil {
			return storeError(err)
		}
		at += len(events)
		events, leave = behind(events, leave)
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

// Close ends the responses in the background, as failed, and waits until they are
// stored so.
func (s *Server) Close() {
	s.tasks.stop()
	s.tasks.left.Wait()
}
