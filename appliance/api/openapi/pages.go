package openapi

import (
	"bytes"
	_ "embed" // the page's template
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"sort"
	"strings"
)

// NoOAuth2 is the page at OAuth2's redirect path. It explains that there is no sign-in.
const NoOAuth2 = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>vapp</title>` +
	`<p>This server has no sign-in: send the key as <code>Authorization: Bearer KEY</code>. <a href="/docs">The routes</a>.</p>` + "\n"

//go:embed page.html
var pageText string

// pageView is the data of the template page.html.
type pageView struct {
	Title, Version, Text string
	Try                  bool // requests can be sent from the page
	Tags                 []tagView
	Bodies               []bodyView
}

type tagView struct {
	Name       string
	Operations []operationView
}

type operationView struct {
	ID, Method, Path, Summary, Text, Example string
	Open                                     bool
	Takes, Gives                             []template.HTML // types of request and reply bodies
}

type bodyView struct {
	Name   string
	Type   template.HTML // of a body without fields
	Fields []fieldView
}

type fieldView struct {
	Name, Text, Default string
	Type                template.HTML
	Required, Old       bool
}

// document is the part of an OpenAPI document that the pages show.
type document struct {
	Info struct{ Title, Version, Description string }
	Tags []struct{ Name string }

	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	OperationID, Summary, Description string
	Tags                              []string
	Security                          []json.RawMessage
	RequestBody                       struct{ Content map[string]content }
	Responses                         map[string]struct{ Content map[string]content }
}

type content struct {
	Schema  schema
	Example json.RawMessage
}

type schema struct {
	Ref         string    `json:"$ref"`
	Type        oneOrMore `json:"type"`
	Description string
	Default     json.RawMessage
	Enum        []any
	Items       *schema
	AnyOf       []schema
	Properties  map[string]schema
	Additional  json.RawMessage `json:"additionalProperties"`
	Required    []string
	Deprecated  bool
}

// oneOrMore is a string or an array of strings in JSON.
type oneOrMore []string

// UnmarshalJSON reads a string or an array of strings.
func (w *oneOrMore) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		*w = oneOrMore{""}
		return json.Unmarshal(b, &(*w)[0])
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// Pages returns the document as two self-contained HTML pages: try, from which
// requests can be sent, and read, without forms.
func Pages(doc []byte) (try, read []byte, err error) {
	var d document
	if err := json.Unmarshal(doc, &d); err != nil {
		return nil, nil, fmt.Errorf("document: %w", err)
	}
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, nil, err
	}
	v := d.view()
	for _, p := range []*[]byte{&read, &try} {
		var b bytes.Buffer
		if err := t.Execute(&b, v); err != nil {
			return nil, nil, err
		}
		*p, v.Try = b.Bytes(), true
	}
	return try, read, nil
}

func (d *document) view() pageView {
	v := pageView{Title: d.Info.Title, Version: d.Info.Version, Text: d.Info.Description}
	paths := []string{}
	for p := range d.Paths {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	for _, tag := range d.Tags {
		t := tagView{Name: tag.Name}
		for _, p := range paths {
			for _, method := range []string{"get", "post", "delete", "put"} {
				if op, ok := d.Paths[p][method]; ok && slices.Contains(op.Tags, tag.Name) {
					t.Operations = append(t.Operations, op.view(method, p))
				}
			}
		}
		v.Tags = append(v.Tags, t)
	}
	names := []string{}
	for n := range d.Components.Schemas {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		v.Bodies = append(v.Bodies, bodyOf(n, d.Components.Schemas[n]))
	}
	return v
}

func (op *operation) view(method, path string) operationView {
	v := operationView{
		ID: op.OperationID, Method: strings.ToUpper(method), Path: path, Summary: op.Summary, Text: op.Description,
		Open: len(op.Security) == 0,
	}
	if c, ok := op.RequestBody.Content["application/json"]; ok {
		v.Takes = []template.HTML{typeOf(c.Schema)}
		var b bytes.Buffer
		if json.Indent(&b, c.Example, "", "  ") == nil {
			v.Example = b.String()
		}
	}
	media := []string{}
	for m := range op.Responses["200"].Content {
		media = append(media, m)
	}
	sort.Strings(media)
	for _, m := range media {
		v.Gives = append(v.Gives, template.HTML(template.HTMLEscapeString(m)+": ")+typeOf(op.Responses["200"].Content[m].Schema))
	}
	return v
}

func bodyOf(name string, s schema) bodyView {
	b := bodyView{Name: name}
	if len(s.Properties) == 0 {
		b.Type = typeOf(s)
	}
	names := []string{}
	for n := range s.Properties {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := slices.Contains(s.Required, names[i]), slices.Contains(s.Required, names[j])
		return a && !b || a == b && names[i] < names[j]
	})
	for _, n := range names {
		p := s.Properties[n]
		b.Fields = append(b.Fields, fieldView{
			Name: n, Text: p.Description, Default: string(p.Default), Type: typeOf(p),
			Required: slices.Contains(s.Required, n), Old: p.Deprecated,
		})
	}
	return b
}

// typeOf returns a short description of a schema's type, with links to named schemas.
func typeOf(s schema) template.HTML {
	esc := template.HTMLEscapeString
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return template.HTML(`<a href="#` + esc(name) + `">` + esc(name) + `</a>`)
	}
	if len(s.AnyOf) > 0 {
		var of []string
		for _, a := range s.AnyOf {
			if t := string(typeOf(a)); t != "null" {
				of = append(of, t)
			}
		}
		return template.HTML(strings.Join(of, " or "))
	}
	if len(s.Enum) > 0 {
		var of []string
		for _, e := range s.Enum {
			of = append(of, "<code>"+esc(fmt.Sprint(e))+"</code>")
		}
		return template.HTML(strings.Join(of, " or "))
	}
	var of []string
	for _, t := range s.Type {
		switch {
		case t == "array" && s.Items != nil:
			of = append(of, "array of "+string(typeOf(*s.Items)))
		case t != "null":
			of = append(of, esc(t))
		}
	}
	if len(of) == 0 {
		return "anything"
	}
	return template.HTML(strings.Join(of, " or "))
}
