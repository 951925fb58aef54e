// Package front serves several models behind one listener: it chooses the server of a request by
// the request's model and hands the request to it. Keys, limits and the rules of requests are that
// server's. It must not know how a request is answered, and it does not know engines or memory.
// Start reading at Front; scan.go finds the model in a body, merge.go answers for all members.
package front

import (
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/chat"
)

// Member is the server of one profile. Its functions are safe for concurrent use and may be
// called at any time.
type Member struct {
	Profile string       // the profile's name
	Handler http.Handler // api.Server.Handler
	// Allows reports whether the server takes a request: api.Server.Allows.
	Allows func(*http.Request) bool
	// Names returns the names in force that a request may have as its model: served names and
	// LoRA adapters.
	Names func() []string
	// Ready reports whether requests for the model are answered: api.State.Ready. A model that is
	// loaded on request is ready while it is unloaded. Healthy is api.State.Healthy.
	Ready, Healthy func() bool
	// Loaded reports whether the model is in memory.
	Loaded func() bool
	// InFlight returns the number of requests in progress.
	InFlight func() int
	// BodyTimeout is the time for a client to send a body; 0: none.
	BodyTimeout func() time.Duration
	// MaxBody is the largest body in bytes.
	MaxBody int64
	// Metrics are the member's series, each with the label model_name.
	Metrics prometheus.Gatherer
}

// Config holds what a Front serves.
type Config struct {
	Members []Member
	// BodyPaths are the paths whose requests name their model in a JSON body: api.Server.BodyPaths.
	BodyPaths []string
	// Metrics answers GET /metrics from the members that the request may read.
	Metrics func(prometheus.Gatherer) http.Handler
	Log     *slog.Logger
}

// Front is the handler of all members.
type Front struct {
	cfg    Config
	bodies bodies
	named  map[string]bool // paths with a model in the body
}

// New returns the handler of the members.
func New(c Config) *Front {
	f := &Front{cfg: c, named: map[string]bool{}}
	var largest int64
	for _, m := range c.Members {
		largest = max(largest, m.MaxBody)
	}
	f.bodies = newBodies(largest)
	for _, path := range c.BodyPaths {
		f.named[path] = true
	}
	return f
}

// profileParam is the parameter of a URL that names a profile, for requests without a model.
const profileParam = "profile"

// ServeHTTP hands the request to a member, or answers for all of them.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if answer := f.shared(r); answer != nil {
		answer(w, r)
		return
	}
	allowed := f.allowed(r)
	path := r.URL.Path
	switch {
	case r.Method == http.MethodOptions:
		f.preflight(r).Handler.ServeHTTP(w, r)
	case len(allowed) == 0: // the member refuses
		f.cfg.Members[0].Handler.ServeHTTP(w, r)
	case r.URL.Query().Has(profileParam):
		f.byProfile(w, r, allowed)
	case len(allowed) == 1:
		allowed[0].Handler.ServeHTTP(w, r)
	case f.named[path] && r.Method == http.MethodPost:
		f.byBody(w, r, allowed)
	case path == "/v1/models":
		f.models(w, r, allowed)
	case strings.HasPrefix(path, "/v1/models/"):
		f.serving(allowed, strings.TrimPrefix(path, "/v1/models/")).Handler.ServeHTTP(w, r)
	case api.IsResponse(path):
		try(w, r, allowed)
	case ofOne(path):
		f.refuse(w, r, chat.Errorf(chat.Invalid, profileParam, "Several profiles run here: add ?profile=NAME to the URL (vapp status: --profile NAME), with one of %s.", profiles(allowed)))
	default:
		f.any(allowed).Handler.ServeHTTP(w, r)
	}
}

// preflight returns the member that answers a preflight, which has neither a key nor a model: the one that the URL
// names, else the first.
func (f *Front) preflight(r *http.Request) *Member {
	name := r.URL.Query().Get(profileParam)
	for i := range f.cfg.Members {
		if m := &f.cfg.Members[i]; m.Profile == name {
			return m
		}
	}
	return &f.cfg.Members[0]
}

// ofOne reports whether a path without a model is about one member.
func ofOne(path string) bool {
	return strings.HasPrefix(path, "/admin/") || path == "/sleep" || path == "/wake_up" || path == "/is_sleeping"
}

// allowed returns the members that take the request.
func (f *Front) allowed(r *http.Request) (list []*Member) {
	for i := range f.cfg.Members {
		if m := &f.cfg.Members[i]; m.Allows(r) {
			list = append(list, m)
		}
	}
	return list
}

// any returns a member for requests that all members answer alike: one whose model is loaded, so
// that no model is loaded for it.
func (f *Front) any(allowed []*Member) *Member {
	for _, m := range allowed {
		if m.Loaded() {
			return m
		}
	}
	return allowed[0]
}

// serving returns the member that serves a name; if there is none, one that refuses it.
func (f *Front) serving(allowed []*Member, name string) *Member {
	for _, m := range allowed {
		if slices.Contains(m.Names(), name) {
			return m
		}
	}
	return f.any(allowed)
}

// byProfile hands the request to the member that its URL names.
func (f *Front) byProfile(w http.ResponseWriter, r *http.Request, allowed []*Member) {
	name := r.URL.Query().Get(profileParam)
	for _, m := range allowed {
		if m.Profile == name {
			m.Handler.ServeHTTP(w, r)
			return
		}
	}
	f.refuse(w, r, chat.Errorf(chat.NotFound, profileParam, "The profile `%s` does not run here; one of %s does.", name, profiles(allowed)))
}

// byBody hands the request to the member that serves the model in its body.
func (f *Front) byBody(w http.ResponseWriter, r *http.Request, allowed []*Member) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		f.any(allowed).Handler.ServeHTTP(w, r) // which refuses it
		return
	}
	in := &intake{w: w, r: r, b: f.bodies}
	if err := in.read(allowed[0].BodyTimeout()); err != nil {
		f.log(r, err)
		w.Header().Set("Connection", "close")
		in.refuse(err)
		return
	}
	defer r.Body.Close()
	if in.scan.state != isFound {
		f.refuse(w, r, chat.Errorf(chat.Invalid, "model", "Several models are served here: set `model` to one of %s.", names(allowed)))
		return
	}
	for _, m := range allowed {
		if slices.Contains(m.Names(), in.scan.found) {
			m.Handler.ServeHTTP(w, r)
			return
		}
	}
	f.refuse(w, r, chat.Errorf(chat.NotFound, "model", "The model `%s` does not exist.", strings.Trim(in.scan.found, "\x00")))
}

// refuse answers a request that goes to no member.
func (f *Front) refuse(w http.ResponseWriter, r *http.Request, e *chat.Error) {
	f.log(r, e)
	api.WriteError(w, r, e)
}

func (f *Front) log(r *http.Request, why error) {
	f.cfg.Log.InfoContext(r.Context(), "request refused", "client", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "error", why.Error())
}

// profiles lists the members' profiles.
func profiles(list []*Member) string {
	var out []string
	for _, m := range list {
		out = append(out, m.Profile)
	}
	return strings.Join(out, ", ")
}

// names lists the first name of each member.
func names(list []*Member) string {
	var out []string
	for _, m := range list {
		if n := m.Names(); len(n) > 0 {
			out = append(out, fmt.Sprintf("`%s`", n[0]))
		}
	}
	return strings.Join(out, ", ")
}
