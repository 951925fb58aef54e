// Package openapi makes an OpenAPI 3.1 document of HTTP routes from the Go types of
// their bodies, and HTML pages of the document. It must not import the packages whose
// routes it describes. Start reading at Document, then Pages in pages.go.
package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"

	"github.com/swaggest/jsonschema-go"
	base "github.com/swaggest/openapi-go"
	"github.com/swaggest/openapi-go/openapi31"
)

// Operation is one method of one path.
type Operation struct {
	Method, Path string // in OpenAPI's syntax: GET, /v1/models/{model}
	Tag          string // section of the document
	Summary      string // one line
	Text         string // longer description, "" for none
	Params       any    // a struct with a field for each path or query parameter; nil: none
	Request      []any  // Go values of the alternative types of the body; none: no body
	Reply        any    // body of a 200 reply; nil: none
	Record       any    // record of a streamed reply; nil: the reply is never streamed
	Media        string // media type of Reply, "" for JSON
	Example      string // a request body
	Open         bool   // needs no key
}

// API describes all routes of a server.
type API struct {
	Title, Version, Text string
	Operations           []Operation
	Error                any            // body of an error
	Errors               map[string]any // bodies of errors in other protocols, by path prefix
	Unauthorized         any            // body of a 401
}

// bearer is the name of the security scheme.
const bearer = "bearer"

// Document returns the OpenAPI 3.1 document of an API in JSON.
func Document(a API) ([]byte, error) {
	r := openapi31.NewReflector()
	r.Spec.Info.WithTitle(a.Title).WithVersion(a.Version).WithDescription(a.Text)
	r.Spec.SetHTTPBearerTokenSecurity(bearer, "", "a key of the profile's serve.apiKeys, where it has any")
	r.JSONSchemaReflector().DefaultOptions = append(r.JSONSchemaReflector().DefaultOptions,
		func(rc *jsonschema.ReflectContext) { rc.EnvelopNullability = true },
		jsonschema.InterceptDefName(func(t reflect.Type, name string) string { return definition(t, name) }),
		jsonschema.InterceptNullability(nullable))
	tags := map[string]bool{}
	for _, op := range a.Operations {
		if err := add(r, &a, op); err != nil {
			return nil, fmt.Errorf("%s %s: %w", op.Method, op.Path, err)
		}
		if !tags[op.Tag] {
			tags[op.Tag] = true
			r.Spec.Tags = append(r.Spec.Tags, openapi31.Tag{Name: op.Tag})
		}
	}
	for _, c := range r.Spec.Components.Schemas {
		removeTypes(c)
	}
	return json.Marshal(r.Spec)
}

// definition returns the component name of a type, such as OpenaiChatBody for
// openai.chatBody.
func definition(t reflect.Type, name string) string {
	if t.Name() == "" {
		return name
	}
	pkg := t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:]
	return title(pkg) + title(t.Name())
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// nullable removes the type null from required arrays and maps.
func nullable(p jsonschema.InterceptNullabilityParams) {
	if p.NullAdded && p.OmitEmpty {
		p.Schema.RemoveType(jsonschema.Null)
	}
}

// removeTypes removes the type of schemas with anyOf or $ref. The reflector gives every
// Go struct the type object, also those that stand for alternatives.
func removeTypes(v any) {
	switch v := v.(type) {
	case map[string]any:
		_, any := v["anyOf"].([]any)
		_, ref := v["$ref"].(string)
		if any || ref {
			delete(v, "type")
		}
		for _, sub := range v {
			removeTypes(sub)
		}
	case []any:
		for _, sub := range v {
			removeTypes(sub)
		}
	}
}

// words matches the words of a path, for an operation's id.
var words = regexp.MustCompile(`[A-Za-z0-9]+`)

// ID returns the operationId, such as post_v1_chat_completions.
func (op *Operation) ID() string {
	return strings.ToLower(op.Method) + "_" + strings.Join(words.FindAllString(op.Path, -1), "_")
}

// errorOf returns the body of the operation's errors.
func (a *API) errorOf(op Operation) any {
	for prefix, e := range a.Errors {
		if op.Path == prefix || strings.HasPrefix(op.Path, prefix+"/") {
			return e
		}
	}
	return a.Error
}

func add(r *openapi31.Reflector, a *API, op Operation) error {
	oc, err := r.NewOperationContext(op.Method, op.Path)
	if err != nil {
		return err
	}
	oc.SetID(op.ID())
	oc.SetSummary(op.Summary)
	oc.SetDescription(op.Text)
	oc.SetTags(op.Tag)
	if op.Params != nil {
		oc.AddReqStructure(op.Params)
	}
	switch len(op.Request) {
	case 0:
	case 1:
		oc.AddReqStructure(op.Request[0], requireBody)
	default:
		oc.AddReqStructure(jsonschema.AnyOf(op.Request...), requireBody, base.WithContentType("application/json"))
	}
	oc.AddRespStructure(op.Reply, base.WithHTTPStatus(http.StatusOK), func(c *base.ContentUnit) {
		c.Description = "The reply."
		if op.Media != "" {
			c.ContentType = op.Media
		}
	})
	if op.Record != nil {
		oc.AddRespStructure(op.Record, base.WithHTTPStatus(http.StatusOK), base.WithContentType("text/event-stream"))
	}
	if !op.Open {
		oc.AddSecurity(bearer)
		oc.AddRespStructure(a.Unauthorized, base.WithHTTPStatus(http.StatusUnauthorized), describe("No key, or none of the server's."))
	}
	oc.AddRespStructure(a.errorOf(op), describe("An error."), func(c *base.ContentUnit) { c.IsDefault = true })
	if err := r.AddOperation(oc); err != nil {
		return err
	}
	return example(r.Spec, op)
}

func describe(text string) base.ContentOption {
	return func(c *base.ContentUnit) { c.Description = text }
}

// requireBody marks the request body as required.
func requireBody(c *base.ContentUnit) {
	c.Customize = func(cor base.ContentOrReference) {
		if b, ok := cor.(*openapi31.RequestBodyOrReference); ok {
			b.RequestBodyEns().WithRequired(true)
		}
	}
}

// example adds the operation's example to its request body.
func example(spec *openapi31.Spec, op Operation) error {
	if op.Example == "" {
		return nil
	}
	var value any
	if err := json.Unmarshal([]byte(op.Example), &value); err != nil {
		return fmt.Errorf("example: %w", err)
	}
	item := spec.Paths.MapOfPathItemValues[op.Path]
	body := item.Post.RequestBody.RequestBody
	media := body.Content["application/json"]
	media.WithExample(value)
	body.Content["application/json"] = media
	return nil
}
