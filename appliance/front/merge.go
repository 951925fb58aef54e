package front

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// shared returns the answer of a request that concerns all members; nil: it concerns one. A request
// that names a profile concerns that one.
func (f *Front) shared(r *http.Request) http.HandlerFunc {
	if r.URL.Query().Has(profileParam) || r.Method != http.MethodGet && r.Method != http.MethodPost {
		return nil
	}
	switch path := r.URL.Path; {
	case path == "/ping", path == "/health" && r.Method == http.MethodGet:
		return f.health
	case r.Method != http.MethodGet:
	case path == "/readyz":
		return f.readyz
	case path == "/load":
		return f.load
	case path == "/metrics", path == "/metrics/":
		return f.metrics
	}
	return nil
}

// without returns the first member that lacks a quality; nil: all have it.
func (f *Front) without(has func(*Member) bool) *Member {
	for i := range f.cfg.Members {
		if m := &f.cfg.Members[i]; !has(m) {
			return m
		}
	}
	return nil
}

// health answers 200 if all members are healthy, else as the first that is not.
func (f *Front) health(w http.ResponseWriter, r *http.Request) {
	if m := f.without(func(m *Member) bool { return m.Healthy() }); m != nil {
		m.Handler.ServeHTTP(w, r)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// readyz answers 200 if all members are ready, else as the first that is not.
func (f *Front) readyz(w http.ResponseWriter, r *http.Request) {
	if m := f.without(func(m *Member) bool { return m.Ready() }); m != nil {
		m.Handler.ServeHTTP(w, r)
		return
	}
	sendJSON(w, map[string]string{"phase": "ready"})
}

// load answers with the number of requests in progress.
func (f *Front) load(w http.ResponseWriter, _ *http.Request) {
	n := 0
	for _, m := range f.cfg.Members {
		n += m.InFlight()
	}
	sendJSON(w, map[string]int{"server_load": n})
}

// metrics answers with the series of the members that the request may read.
func (f *Front) metrics(w http.ResponseWriter, r *http.Request) {
	var all prometheus.Gatherers
	for _, m := range f.allowed(r) {
		all = append(all, m.Metrics)
	}
	if len(all) == 0 {
		f.cfg.Members[0].Handler.ServeHTTP(w, r) // which refuses it
		return
	}
	f.cfg.Metrics(all).ServeHTTP(w, r)
}

// models lists the models of the members. A member that cannot list them now, because it loads its
// model for the first time, is left out; if none can, its refusal is the answer.
func (f *Front) models(w http.ResponseWriter, r *http.Request, allowed []*Member) {
	var all []json.RawMessage
	var last *recorder
	answered := false
	for _, m := range allowed {
		rec := &recorder{header: http.Header{}}
		m.Handler.ServeHTTP(rec, r.WithContext(r.Context())) // a copy: handlers replace the body
		var list struct {
			Data []json.RawMessage `json:"data"`
		}
		if rec.status == http.StatusOK && json.Unmarshal(rec.body.Bytes(), &list) == nil {
			all, answered = append(all, list.Data...), true
		}
		last = rec
	}
	if !answered {
		last.send(w)
		return
	}
	var body bytes.Buffer
	body.WriteString(`{"object":"list","data":[`)
	for i, one := range all {
		if i > 0 {
			body.WriteByte(',')
		}
		body.Write(one)
	}
	body.WriteString("]}")
	for name, values := range last.header {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			w.Header()[name] = values
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body.Bytes())
}

func sendJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// recorder keeps a reply.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

// send sends the reply.
func (r *recorder) send(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.WriteHeader(max(r.status, http.StatusOK))
	_, _ = w.Write(r.body.Bytes())
}
