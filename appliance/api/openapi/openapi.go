// Package openapi describes HTTP routes: an OpenAPI 3.1 document made from the Go
// types of their bodies, and pages that show it.
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
	Method, Path string // as HTTP and OpenAPI write them: GET, /v1/models/{model}
	Tag          string // the part of the document it stands in
	Summary      string // one line
	Text         string // more, if there is more
	Params       any    // a struct whose fields name what Path has in braces; nil: nothing
	Request      []any  // Go values, one of which the body is; none: no body
	Reply        any    // the body of a 200; nil: none
	Record       any    // a record of the reply when it is a stream; nil: it is none
	Media        string // of Reply, when it is no JSON
	Example      string // of a body
	Open         bool   // needs no key
}

// API is a whole service.
type API struct {
	Title, Version, Text string
	Operations           []Operation
	Error                any            // the body of an error
	Errors               map[string]any // by prefix of the path, where another protocol has another form
	Unauthorized         any            // the body of a 401
}

// bearer names the way to show a key.
const bearer = "bearer"

// Document is the API as OpenAPI 3.1 in JSON.
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
		untyped(c)
	}
	return json.Marshal(r.Spec)
}

// definition names a component by its package and type: openai.chatBody is
// OpenaiChatBody.
func definition(t reflect.Type, name string) string {
	if t.Name() == "" {
		return name
	}
	pkg := t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:]
	return title(pkg) + title(t.Name())
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// nullable takes the null from arrays and maps that must be there.
func nullable(p jsonschema.InterceptNullabilityParams) {
	if p.NullAdded && p.OmitEmpty {
		p.Schema.RemoveType(jsonschema.Null)
	}
}

// untyped takes the type from schemas that say by other means what they are: the
// reflector calls every Go struct an object, also one that lists alternatives.
func untyped(v any) {
	switch v := v.(type) {
	case map[string]any:
		_, any := v["anyOf"].([]any)
		_, ref := v["$ref"].(string)
		if any || ref {
			delete(v, "type")
		}
		for _, sub := range v {
			untyped(sub)
		}
	case []any:
		for _, sub := range v {
			untyped(sub)
		}
	}
}

// words are what an operation's id is made of.
var words = regexp.MustCompile(`[A-Za-z0-9]+`)

// ID is the operationId, such as post_v1_chat_completions.
func (op *Operation) ID() string {
	return strings.ToLower(op.Method) + "_" + strings.Join(words.FindAllString(op.Path, -1), "_")
}

// errorOf is the body of the operation's errors.
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
		oc.AddReqStructure(op.Request[0], required)
	default:
		oc.AddReqStructure(jsonschema.AnyOf(op.Request...), required, base.WithContentType("application/json"))
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

// required says that there must be a body.
func required(c *base.ContentUnit) {
	c.Customize = func(cor base.ContentOrReference) {
		if b, ok := cor.(*openapi31.RequestBodyOrReference); ok {
			b.RequestBodyEns().WithRequired(true)
		}
	}
}

// example puts the operation's example beside its request.
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
