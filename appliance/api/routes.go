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
	"vapp.dev/appliance/drift"
)

// statusRoute is the route that the page requests each second.
const statusRoute = "/admin/status"

// route is one row of the route table: the methods and path, the handler, and the
// entry of /openapi.json. An empty Path of the entry stands for the route's path.
type route struct {
	methods   string // with spaces between
	path      string // as echo writes it
	serve     echo.HandlerFunc
	operation openapi.Operation
}

// table returns every supported route.
func (s *Server) table() []route {
	return slices.Concat(s.openaiRoutes(), s.responsesRoutes(), s.anthropicRoutes(), s.poolingRoutes(), s.adapterRoutes(), s.infoRoutes(), s.docsRoutes(), s.ownRoutes())
}

func (s *Server) openaiRoutes() []route {
	const (
		tag   = "OpenAI"
		hello = `{"messages":[{"role":"user","content":"Say hello."}],"max_tokens":32}`
		upon  = `{"prompt":"Once upon a time","max_tokens":32}`
	)
	return []route{
		{"POST", "/v1/chat/completions", s.ready(s.chat), describe(tag, "Answer a conversation", openai.ChatShape(), hello)},
		{"POST", "/v1/completions", s.ready(s.completion), describe(tag, "Continue a text", openai.CompletionShape(), upon)},
		{"POST", "/v1/chat/completions/render", s.ready(s.renderChat), describe(tag, "Render a conversation as tokens and parameters", openai.RenderChatShape(), hello)},
		{"POST", "/v1/chat/completions/batch", s.ready(s.batch), describe(tag, "Answer several conversations", openai.BatchShape(),
			`{"messages":[[{"role":"user","content":"Say hello."}],[{"role":"user","content":"Say goodbye."}]],"max_tokens":32}`)},
		{"POST", "/v1/completions/render", s.ready(s.renderCompletion), describe(tag, "Render texts as tokens and parameters", openai.RenderCompletionShape(), upon)},
		{"POST", "/inference/v1/generate", s.ready(s.generateTokens), describe(tag, "Continue tokens with tokens", openai.GenerateShape(),
			`{"token_ids":[1,2,3],"sampling_params":{"max_tokens":32}}`)},
		{"POST", "/invocations", s.ready(s.invocations), describe(tag, "Any of the requests above, recognized by its fields", openai.InvocationsShape(), hello)},
		{"GET", "/v1/models", s.described(s.models), describe(tag, "List the served names", openai.ModelsShape(), "")},
		{"GET", "/v1/models/*", s.described(s.model), openapi.Operation{
			Path: "/v1/models/{model}", Tag: tag, Summary: "Describe a served name", Reply: openai.Model{},
			Params: struct {
				Model string `path:"model" description:"The name may contain slashes."`
			}{},
		}},
		{"POST", "/tokenize", s.ready(s.tokenize), describe(tag, "Tokenize a text or a conversation", openai.TokenizeShape(), `{"prompt":"Hello!"}`)},
		{"POST", "/detokenize", s.ready(s.detokenize), describe(tag, "Detokenize", openai.DetokenizeShape(), `{"tokens":[1,2,3]}`)},
	}
}

// responseID is the path parameter of a response.
type responseID struct {
	ID string `path:"id"`
}

func (s *Server) responsesRoutes() []route {
	const tag = "Responses"
	return []route{
		{"POST", responsesPath, s.ready(s.responses), describe(tag, "Answer a text or items", openai.ResponsesShape(), `{"input":"Say hello.","max_output_tokens":32}`)},
		{"GET", responsesPath + "/:id", s.withStored(s.storedResponse), openapi.Operation{
			Path: responsesPath + "/{id}", Tag: tag, Summary: "Read a stored response, or the events of its stream",
			Params: struct {
				responseID
				Stream        bool `query:"stream" description:"Return the events of a background response that was created with stream."`
				StartingAfter int  `query:"starting_after" description:"Return only events with a greater sequence_number."`
			}{}, Reply: openai.ResponsesShape().Reply, Record: openai.ResponsesShape().Record,
		}},
		{"DELETE", responsesPath + "/:id", s.withStored(s.deleteResponse), openapi.Operation{
			Path: responsesPath + "/{id}", Tag: tag, Summary: "Delete a stored response", Params: responseID{}, Reply: openai.DeletionShape().Reply,
		}},
		{"POST", responsesPath + "/:id/cancel", s.withStored(s.cancelResponse), openapi.Operation{
			Path: responsesPath + "/{id}/cancel", Tag: tag, Summary: "Cancel a background response", Params: responseID{}, Reply: openai.ResponsesShape().Reply,
		}},
		{"GET", responsesPath + "/:id/input_items", s.withStored(s.inputItems), openapi.Operation{
			Path: responsesPath + "/{id}/input_items", Tag: tag, Summary: "List the input items of a stored response, those of previous responses included",
			Params: struct {
				responseID
				Limit int    `query:"limit" default:"20" minimum:"1" maximum:"100"`
				Order string `query:"order" default:"desc" enum:"asc,desc"`
				After string `query:"after" description:"An item's id: return the items after it."`
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
		{"GET", "/livez", s.livez, openapi.Operation{Tag: tag, Summary: "Whether the process is alive: 200", Reply: phase{}, Open: true}},
		{"GET", "/readyz", s.readyz, openapi.Operation{Tag: tag, Summary: "Whether requests are answered: 200 or 503", Reply: phase{}, Open: true}},
		{"GET", "/version", s.version, openapi.Operation{Tag: tag, Summary: "The server's version", Reply: version{}, Open: true}},
		{"GET", "/load", s.load, openapi.Operation{Tag: tag, Summary: "The number of requests in flight", Reply: load{}, Open: true}},
		{"POST", "/is_scaling_elastic_ep", s.notScaling, openapi.Operation{Tag: tag, Summary: "Whether the number of replicas is changing: always false", Reply: scaling{}}},
		{"GET", "/is_sleeping", s.isSleeping, openapi.Operation{Tag: tag, Summary: "Whether the model sleeps", Reply: sleeping{}}},
		{"POST", "/sleep", s.asleep(s.sleep), openapi.Operation{Tag: tag, Summary: "Free the KV cache (level 1), or the whole model (2) (serve.sleep)", Params: struct {
			Level int `query:"level" default:"1" minimum:"1" maximum:"2"`
		}{}, Reply: SleepReply{}}},
		{"POST", "/wake_up", s.asleep(s.wakeUp), openapi.Operation{Tag: tag, Summary: "Load a sleeping model again (serve.sleep)"}},
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

// ownRoutes returns the routes that only vapp has.
func (s *Server) ownRoutes() (list []route) {
	const tag = "Appliance"
	if s.cfg.Reloads != nil {
		list = append(list, route{"GET", "/admin/reloads", passKey(s.cfg.Reloads),
			openapi.Operation{Tag: tag, Summary: "The outcome of each reload of the profile", Reply: []any{}}})
	}
	if s.cfg.Drift != nil {
		list = append(list, route{"GET", "/admin/drift", passKey(s.cfg.Drift),
			openapi.Operation{Tag: tag, Summary: "What is declared, in force, planned and measured, and where they differ", Reply: drift.Report{}}})
	}
	if s.cfg.Status != nil {
		list = append(list, route{"GET", statusRoute, passKey(s.cfg.Status),
			openapi.Operation{Tag: tag, Summary: "Plan, actual memory and load, as shown by the page at /", Reply: map[string]any{}}})
	}
	if s.cfg.Page != nil {
		list = append(list, route{"GET", "/", echo.WrapHandler(s.cfg.Page),
			openapi.Operation{Tag: tag, Summary: "A page to chat with the model", Reply: "", Media: "text/html", Open: true}})
	}
	return list
}

// describe returns the operation of a route with the given shape.
func describe(tag, summary string, s openai.Shape, example string) openapi.Operation {
	return openapi.Operation{Tag: tag, Summary: summary, Request: s.Request, Reply: s.Reply, Record: s.Record, Example: example}
}

func (s *Server) routes() {
	for _, r := range s.table() {
		if len(r.operation.Request) > 0 {
			r.serve = s.admit(r.serve)
		}
		s.echo.Match(strings.Fields(r.methods), r.path, r.serve)
	}
	for _, r := range unsupported {
		s.echo.Match(r.methods, r.path, s.refuse)
	}
}

// operations returns the entries of the OpenAPI document, in the table's order.
func (s *Server) operations() (list []openapi.Operation) {
	for _, r := range s.table() {
		for _, method := range strings.Fields(r.methods) {
			op := r.operation
			if op.Method = method; op.Path == "" {
				op.Path = r.path
			}
			if method != http.MethodHead { // GET is documented
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

// Routes returns the supported routes, sorted by path.
func (s *Server) Routes() []Route {
	methods := map[string][]string{}
	for _, r := range s.echo.Routes() {
		if !strings.HasPrefix(r.Method, "echo_") {
			methods[r.Path] = append(methods[r.Path], r.Method)
		}
	}
	for _, r := range unsupported {
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

// LogRoutes logs the routes in vLLM's format, at level debug.
func (s *Server) LogRoutes() {
	s.cfg.Log.Debug("Available routes are:")
	for _, r := range s.Routes() {
		s.cfg.Log.Debug("Route: " + r.Path + ", Methods: " + strings.Join(r.Methods, ", "))
	}
}
