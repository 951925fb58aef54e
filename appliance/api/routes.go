package api

import (
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/labstack/echo/v4"

	"vapp.dev/appliance/api/anthropic"
	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/api/openapi"
)

// statusRoute is what the page asks for each second.
const statusRoute = "/admin/status"

// route is one row of the table: what is served, by whom, and what /openapi.json
// tells of it. Its operation's Path may be left out where it is the route's own.
type route struct {
	methods string // with spaces between
	path    string // as echo writes it
	serve   echo.HandlerFunc
	tells   openapi.Operation
}

// table is every route that does something.
func (s *Server) table() []route {
	return slices.Concat(s.openaiRoutes(), s.responsesRoutes(), s.anthropicRoutes(), s.poolingRoutes(), s.infoRoutes(), s.docsRoutes(), s.ownRoutes())
}

func (s *Server) openaiRoutes() []route {
	const (
		tag   = "OpenAI"
		hello = `{"messages":[{"role":"user","content":"Say hello."}],"max_tokens":32}`
		upon  = `{"prompt":"Once upon a time","max_tokens":32}`
	)
	return []route{
		{"POST", "/v1/chat/completions", s.ready(s.chat), tells(tag, "Answer a conversation", openai.ChatShape(), hello)},
		{"POST", "/v1/completions", s.ready(s.completion), tells(tag, "Go on with a text", openai.CompletionShape(), upon)},
		{"POST", "/v1/chat/completions/render", s.ready(s.renderChat), tells(tag, "The tokens and parameters that a conversation becomes", openai.RenderChatShape(), hello)},
		{"POST", "/v1/chat/completions/batch", s.ready(s.batch), tells(tag, "Answer several conversations", openai.BatchShape(),
			`{"messages":[[{"role":"user","content":"Say hello."}],[{"role":"user","content":"Say goodbye."}]],"max_tokens":32}`)},
		{"POST", "/v1/completions/render", s.ready(s.renderCompletion), tells(tag, "The tokens and parameters that texts become", openai.RenderCompletionShape(), upon)},
		{"POST", "/inference/v1/generate", s.ready(s.generateTokens), tells(tag, "Tokens to tokens", openai.GenerateShape(),
			`{"token_ids":[1,2,3],"sampling_params":{"max_tokens":32}}`)},
		{"POST", "/invocations", s.ready(s.invocations), tells(tag, "Any of the requests above, told by its fields", openai.InvocationsShape(), hello)},
		{"GET", "/v1/models", s.ready(s.models), tells(tag, "List the served names", openai.ModelsShape(), "")},
		{"GET", "/v1/models/*", s.ready(s.model), openapi.Operation{
			Path: "/v1/models/{model}", Tag: tag, Summary: "Describe a served name", Reply: openai.Model{},
			Params: struct {
				Model string `path:"model" description:"It may hold slashes."`
			}{},
		}},
		{"POST", "/tokenize", s.ready(s.tokenize), tells(tag, "Text or a conversation to tokens", openai.TokenizeShape(), `{"prompt":"Hello!"}`)},
		{"POST", "/detokenize", s.ready(s.detokenize), tells(tag, "Tokens to text", openai.DetokenizeShape(), `{"tokens":[1,2,3]}`)},
	}
}

// responseID is in a path.
type responseID struct {
	ID string `path:"id"`
}

func (s *Server) responsesRoutes() []route {
	const tag = "Responses"
	return []route{
		{"POST", responsesPath, s.ready(s.responses), tells(tag, "Answer a text or items", openai.ResponsesShape(), `{"input":"Say hello.","max_output_tokens":32}`)},
		{"GET", responsesPath + "/:id", s.stored(s.storedResponse), openapi.Operation{
			Path: responsesPath + "/{id}", Tag: tag, Summary: "A stored response, or the events of its stream",
			Params: struct {
				responseID
				Stream        bool `query:"stream" description:"Of a response that was created in the background and streamed: its events."`
				StartingAfter int  `query:"starting_after" description:"Those with a greater sequence_number."`
			}{}, Reply: openai.ResponsesShape().Reply, Record: openai.ResponsesShape().Record,
		}},
		{"DELETE", responsesPath + "/:id", s.stored(s.deleteResponse), openapi.Operation{
			Path: responsesPath + "/{id}", Tag: tag, Summary: "Forget a stored response", Params: responseID{}, Reply: openai.DeletionShape().Reply,
		}},
		{"POST", responsesPath + "/:id/cancel", s.stored(s.cancelResponse), openapi.Operation{
			Path: responsesPath + "/{id}/cancel", Tag: tag, Summary: "End a response that runs in the background", Params: responseID{}, Reply: openai.ResponsesShape().Reply,
		}},
		{"GET", responsesPath + "/:id/input_items", s.stored(s.inputItems), openapi.Operation{
			Path: responsesPath + "/{id}/input_items", Tag: tag, Summary: "What a stored response answers, what came before it included",
			Params: struct {
				responseID
				Limit int    `query:"limit" default:"20" minimum:"1" maximum:"100"`
				Order string `query:"order" default:"desc" enum:"asc,desc"`
				After string `query:"after" description:"The id of an item: those behind it."`
			}{}, Reply: openai.ItemPageShape().Reply,
		}},
	}
}

func (s *Server) anthropicRoutes() []route {
	const tag = "Anthropic"
	m, n := anthropic.MessagesShape(), anthropic.CountShape()
	return []route{
		{"POST", messagesPath, s.ready(s.messages), openapi.Operation{
			Tag: tag, Summary: "Answer a conversation", Request: []any{m.Request}, Reply: m.Reply, Record: m.Record,
			Example: `{"max_tokens":32,"messages":[{"role":"user","content":"Say hello."}]}`,
		}},
		{"POST", messagesPath + "/count_tokens", s.ready(s.countTokens), openapi.Operation{
			Tag: tag, Summary: "Count the tokens of a conversation", Request: []any{n.Request}, Reply: n.Reply,
			Example: `{"messages":[{"role":"user","content":"Say hello."}]}`,
		}},
	}
}

func (s *Server) infoRoutes() []route {
	const tag, health = "Information", "Whether requests are answered: 200 or 503, without a body"
	list := []route{
		{"GET", "/health", s.health, openapi.Operation{Tag: tag, Summary: health, Open: true}},
		{"GET POST", "/ping", s.health, openapi.Operation{Tag: tag, Summary: health, Open: true}},
		{"GET", "/livez", s.alive, openapi.Operation{Tag: tag, Summary: "Whether there is a process at all", Reply: phase{}, Open: true}},
		{"GET", "/readyz", s.readiness, openapi.Operation{Tag: tag, Summary: "Whether requests are answered: 200 or 503", Reply: phase{}, Open: true}},
		{"GET", "/version", s.version, openapi.Operation{Tag: tag, Summary: "The server's version", Reply: version{}, Open: true}},
		{"GET", "/load", s.load, openapi.Operation{Tag: tag, Summary: "How many requests are in flight", Reply: load{}, Open: true}},
		{"POST", "/is_scaling_elastic_ep", s.notScaling, openapi.Operation{Tag: tag, Summary: "Whether a scaling is under way: never", Reply: scaling{}}},
	}
	if s.cfg.Metrics != nil {
		h := echo.WrapHandler(s.cfg.Metrics)
		const sum = "Metrics for Prometheus"
		list = append(list,
			route{"GET", "/metrics", h, openapi.Operation{Tag: tag, Summary: sum, Reply: "", Media: "text/plain", Open: true}},
			route{"GET", "/metrics/", h, openapi.Operation{Tag: tag, Summary: sum, Reply: "", Media: "text/plain", Open: true}})
	}
	return list
}

// ownRoutes are vapp's own.
func (s *Server) ownRoutes() (list []route) {
	const tag = "Appliance"
	if s.cfg.Reloads != nil {
		list = append(list, route{"GET", "/admin/reloads", wrapped(s.cfg.Reloads),
			openapi.Operation{Tag: tag, Summary: "What became of each reload of the profile", Reply: []any{}}})
	}
	if s.cfg.Status != nil {
		list = append(list, route{"GET", statusRoute, wrapped(s.cfg.Status),
			openapi.Operation{Tag: tag, Summary: "Plan, reality and load, as the page at / shows them", Reply: map[string]any{}}})
	}
	if s.cfg.Page != nil {
		list = append(list, route{"GET", "/", echo.WrapHandler(s.cfg.Page),
			openapi.Operation{Tag: tag, Summary: "A page to chat with the model", Reply: "", Media: "text/html", Open: true}})
	}
	return list
}

// tells is the operation of a shape.
func tells(tag, summary string, s openai.Shape, example string) openapi.Operation {
	return openapi.Operation{Tag: tag, Summary: summary, Request: s.Request, Reply: s.Reply, Record: s.Record, Example: example}
}

func (s *Server) routes() {
	for _, r := range s.table() {
		if len(r.tells.Request) > 0 {
			r.serve = s.admitted(r.serve)
		}
		s.echo.Match(strings.Fields(r.methods), r.path, r.serve)
	}
	for _, r := range refused {
		s.echo.Match(r.methods, r.path, s.refuse)
	}
}

// operations are what the document tells, in the table's order.
func (s *Server) operations() (list []openapi.Operation) {
	for _, r := range s.table() {
		for _, method := range strings.Fields(r.methods) {
			op := r.tells
			if op.Method = method; op.Path == "" {
				op.Path = r.path
			}
			if method != http.MethodHead { // as GET, without the body
				list = append(list, op)
			}
		}
	}
	return list
}

// Route is one path and its methods, sorted.
type Route struct {
	Path    string
	Methods []string
}

// Routes lists what is served, by path; routes that only say that they are not
// available are left out.
func (s *Server) Routes() []Route {
	methods := map[string][]string{}
	for _, r := range s.echo.Routes() {
		if !strings.HasPrefix(r.Method, "echo_") {
			methods[r.Path] = append(methods[r.Path], r.Method)
		}
	}
	for _, r := range refused {
		delete(methods, r.path)
	}
	var out []Route
	for path, m := range methods {
		sort.Strings(m)
		out = append(out, Route{path, m})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}

// LogRoutes writes the table as vLLM does.
func (s *Server) LogRoutes() {
	s.cfg.Log.Info("Available routes are:")
	for _, r := range s.Routes() {
		s.cfg.Log.Info("Route: " + r.Path + ", Methods: " + strings.Join(r.Methods, ", "))
	}
}
