// Package mutate generates requests from an OpenAPI document, most of them invalid in one or
// several ways, and checks a server's replies. The same seed gives the same requests. It must
// not know vapp: it sees only the document and the replies, and it sends nothing itself.
// Start reading at Maker.Next in mutate.go and Judge in judge.go.
package mutate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
)

// Request is one request.
type Request struct {
	Method, Path string
	Header       map[string]string
	Body         []byte
	How          []string // the mutations
}

// String returns the request in a few lines for error messages.
func (r Request) String() string {
	body := r.Body
	if len(body) > 400 {
		body = append(append([]byte{}, body[:400]...), "…"...)
	}
	return fmt.Sprintf("%s %s (%s) %v\n%q", r.Method, r.Path, strings.Join(r.How, ", "), r.Header, body)
}

// Maker generates requests. Only one goroutine may use it.
type Maker struct {
	// Gentle leaves out grammars that may use up the whole budget of a grammar compiler.
	Gentle bool

	rnd  *rand.Rand
	ops  []operation
	defs map[string]*schema
}

type operation struct {
	method, path string
	body         *schema
	rare         bool // chosen one time in ten
}

type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"`
	Enum       []any              `json:"enum"`
	AnyOf      []*schema          `json:"anyOf"`
	Items      *schema            `json:"items"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Minimum    *float64           `json:"minimum"`
	Maximum    *float64           `json:"maximum"`
}

// New returns the Maker of a document. more lists routes that are not in it: "POST /path".
func New(doc []byte, more []string, seed uint64) (*Maker, error) {
	var d struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct {
					Schema *schema `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]*schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(doc, &d); err != nil {
		return nil, fmt.Errorf("mutate: document: %w", err)
	}
	m := &Maker{rnd: rand.New(rand.NewPCG(seed, seed)), defs: d.Components.Schemas}
	for path, methods := range d.Paths {
		for method, op := range methods {
			o := operation{method: strings.ToUpper(method), path: path, rare: true}
			if c, ok := op.RequestBody.Content["application/json"]; ok {
				o.body, o.rare = c.Schema, false
			}
			m.ops = append(m.ops, o)
		}
	}
	for _, route := range more {
		method, path, _ := strings.Cut(route, " ")
		m.ops = append(m.ops, operation{method: method, path: path, body: &schema{}, rare: true})
	}
	sort.Slice(m.ops, func(i, j int) bool {
		a, b := m.ops[i], m.ops[j]
		return a.path < b.path || a.path == b.path && a.method < b.method
	})
	if len(m.ops) == 0 {
		return nil, fmt.Errorf("mutate: the document has no operations")
	}
	return m, nil
}

// Next returns a request, in most cases for a route with a body.
func (m *Maker) Next() Request {
	op := m.ops[m.rnd.IntN(len(m.ops))]
	for op.rare && m.rnd.IntN(10) > 0 {
		op = m.ops[m.rnd.IntN(len(m.ops))]
	}
	r := Request{Method: op.method, Path: m.fill(op.path), Header: map[string]string{}}
	if op.body != nil {
		r.Header["Content-Type"] = "application/json"
		var value any = m.value(op.body, 0)
		for range m.rnd.IntN(3) {
			name := ""
			value, name = m.bend(value)
			r.How = append(r.How, name)
		}
		r.Body = m.encode(value)
	}
	m.envelope(&r)
	return r
}

// fill replaces the names in braces of a path.
func (m *Maker) fill(path string) string {
	for {
		i := strings.IndexByte(path, '{')
		if i < 0 {
			return path
		}
		j := strings.IndexByte(path, '}')
		path = path[:i] + pick(m.rnd, "x", "resp_0", "a%2Fb", "%00", "..", "%F0%9F%98%80", strings.Repeat("y", 3000)) + path[j+1:]
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// small holds fields that determine the work of a valid request, with their maximum.
var small = map[string]int{
	"max_tokens": 3, "max_completion_tokens": 3, "max_output_tokens": 3, "n": 2, "best_of": 2, "min_tokens": 2,
	"thinking_token_budget": 3,
}

// plain holds fields that a server may refuse because of its configuration, with a value that
// every server accepts; fields without one are left out. Rarely they are treated as any field.
var plain = map[string]any{
	"model": "", "priority": 0, "previous_response_id": nil, "suffix": nil, "conversation": nil, "background": false, "best_of": nil,
	"prompt_embeds": nil, "mcp_servers": nil, "stream_options": nil, "repetition_detection": nil, "truncate_prompt_tokens": nil,
	"continue_final_message": false, "dimensions": nil, "logit_bias": map[string]any{"1": 1}, "allowed_token_ids": nil, "prompt_logprobs": nil,
	"structured_outputs": nil, "guided_grammar": nil, "guided_structural_tag": nil, "guided_json": nil, "min_tokens": 0, "tool_choice": nil,
	"use_beam_search": false, "top_logprobs": nil, "cache_salt": "x",
}

// value returns a value that a schema allows, as far as the schema defines it: objects with
// the required fields and a few others.
func (m *Maker) value(s *schema, depth int) any {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return m.value(m.defs[name], depth)
	}
	if len(s.AnyOf) > 0 {
		return m.value(pick(m.rnd, s.AnyOf...), depth)
	}
	if len(s.Enum) > 0 {
		return pick(m.rnd, s.Enum...)
	}
	switch m.kind(s) {
	case "object":
		return m.object(s, depth)
	case "array":
		list := []any{}
		for range 1 + m.rnd.IntN(2) {
			if s.Items != nil && depth < 8 {
				list = append(list, m.value(s.Items, depth+1))
			}
		}
		return list
	case "string":
		return pick(m.rnd, "hi", "Say hello.", "x", "", "ünï¢ödé 😀", "user", "a b c")
	case "integer":
		return json.Number(fmt.Sprint(m.rnd.IntN(4)))
	case "number":
		return pick[any](m.rnd, 0, 0.5, 1, 0.25)
	case "boolean":
		return m.rnd.IntN(2) == 0
	case "null":
		return nil
	}
	return pick[any](m.rnd, nil, "x", 1, true, []any{}, map[string]any{"type": "object"})
}

// kind returns one of the types of a schema, rarely null.
func (m *Maker) kind(s *schema) string {
	switch t := s.Type.(type) {
	case string:
		return t
	case []any:
		k, _ := pick(m.rnd, t...).(string)
		if k == "null" && m.rnd.IntN(4) > 0 {
			k, _ = pick(m.rnd, t...).(string)
		}
		return k
	}
	return ""
}

func (m *Maker) object(s *schema, depth int) map[string]any {
	out := map[string]any{}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	sort.Strings(names)
	share := max(1, len(names)/2)
	for _, name := range names {
		must := false
		for _, r := range s.Required {
			must = must || r == name
		}
		if v, is := plain[name]; is && !must && m.rnd.IntN(12) > 0 {
			if v != nil && m.rnd.IntN(3) == 0 {
				out[name] = v
			}
		} else if n, is := small[name]; is {
			out[name] = json.Number(fmt.Sprint(1 + m.rnd.IntN(n)))
		} else if must || m.rnd.IntN(share) == 0 && depth < 6 {
			out[name] = m.value(s.Properties[name], depth+1)
		}
	}
	return out
}
