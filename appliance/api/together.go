package api

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/chat"
)

// Allows reports whether the server takes a request: it has one of the keys, if its path needs
// one, and names this host. Where several servers share a listener, requests go to those that
// allow them.
func (s *Server) Allows(r *http.Request) bool {
	l := s.settings.Load()
	return (!l.checksHosts() || l.Hosts.allows(r.Host)) && (isPublic(r.URL.Path, l) || l.trusted(r))
}

// BodyPaths returns the paths whose requests have a JSON body.
func (s *Server) BodyPaths() (list []string) {
	for _, r := range s.table() {
		if len(r.operation.Request) > 0 {
			list = append(list, r.path)
		}
	}
	return list
}

// WriteError answers a request with an error in the form of its path's protocol. It closes the
// connection, since the body may not have been read.
func WriteError(w http.ResponseWriter, r *http.Request, e *chat.Error) {
	if e.Kind == chat.Overloaded || e.Kind == chat.Unavailable {
		w.Header().Set(echo.HeaderRetryAfter, "1")
	}
	writeError(w, openai.Status(e), wordingOf(r.URL.Path).error(e))
}

// WriteStatus is WriteError for an error that is no *chat.Error.
func WriteStatus(w http.ResponseWriter, r *http.Request, status int, message string) {
	writeError(w, status, wordingOf(r.URL.Path).status(status, message))
}

func writeError(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set(echo.HeaderConnection, "close")
	w.Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// IsResponse reports whether a path is that of one stored response, or below it.
func IsResponse(path string) bool { return strings.HasPrefix(path, responsesPath+"/") }
