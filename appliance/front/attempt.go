package front

import "net/http"

// try hands the request to one member after the other until one knows what it asks for: replies
// with status 404 of all but the last are dropped. The request has no body.
func try(w http.ResponseWriter, r *http.Request, members []*Member) {
	for _, m := range members[:len(members)-1] {
		a := &attempt{ResponseWriter: w, header: http.Header{}}
		m.Handler.ServeHTTP(a, r.WithContext(r.Context())) // a copy: handlers replace the body
		if !a.missed {
			return
		}
	}
	members[len(members)-1].Handler.ServeHTTP(w, r)
}

// attempt drops a reply with status 404, and passes on any other.
type attempt struct {
	http.ResponseWriter
	header        http.Header
	missed, begun bool
}

// Header implements http.ResponseWriter.
func (a *attempt) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *attempt) WriteHeader(status int) {
	if a.missed || a.begun {
		return
	}
	if status == http.StatusNotFound {
		a.missed = true
		return
	}
	a.begun = status >= http.StatusOK
	for name, values := range a.header {
		a.ResponseWriter.Header()[name] = values
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *attempt) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.missed {
		return len(b), nil
	}
	return a.ResponseWriter.Write(b)
}

// FlushError implements what http.ResponseController looks for.
func (a *attempt) FlushError() error {
	a.WriteHeader(http.StatusOK)
	if a.missed {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap returns the writer, for its deadlines.
func (a *attempt) Unwrap() http.ResponseWriter { return a.ResponseWriter }
