package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeSchemas writes a JSON schema for each kind of an API server's OpenAPI document (version 2, with the
// definitions of custom resources) into a folder, under the names by which kubeconform asks for them.
// A field that the document does not have is an error, as with kubectl's strict validation.
func writeSchemas(openapi []byte, folder string) (int, error) {
	var doc struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(openapi, &doc); err != nil {
		return 0, err
	}
	for name, d := range doc.Definitions {
		switch {
		case strings.HasSuffix(name, ".api.resource.Quantity"):
			doc.Definitions[name] = map[string]any{"type": []string{"string", "number"}}
		case strings.HasSuffix(name, ".util.intstr.IntOrString"):
			doc.Definitions[name] = map[string]any{"type": []string{"string", "integer"}}
		default:
			strict(d)
		}
	}
	count := 0
	for name, d := range doc.Definitions {
		kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			k := k.(map[string]any)
			used := map[string]any{}
			closure(doc.Definitions, name, used)
			text, err := json.Marshal(map[string]any{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/" + name, "definitions": used})
			if err != nil {
				return 0, err
			}
			suffix := "-" + k["version"].(string)
			if group, _, _ := strings.Cut(k["group"].(string), "."); group != "" {
				suffix = "-" + group + suffix
			}
			file := strings.ToLower(k["kind"].(string)+suffix) + ".json"
			if err := os.WriteFile(filepath.Join(folder, file), text, 0o644); err != nil {
				return 0, err
			}
			count++
		}
	}
	if count == 0 {
		return 0, fmt.Errorf("the OpenAPI document has no kinds")
	}
	return count, nil
}

// strict forbids unknown fields of objects with known ones, and lets integers stand for text where the
// server does.
func strict(schema map[string]any) {
	if schema["x-kubernetes-int-or-string"] == true {
		delete(schema, "type")
	}
	properties, _ := schema["properties"].(map[string]any)
	if _, says := schema["additionalProperties"]; properties != nil && !says && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	for _, p := range properties {
		if p, ok := p.(map[string]any); ok {
			strict(p)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if p, ok := schema[key].(map[string]any); ok {
			strict(p)
		}
	}
}

// closure adds a definition and those that it refers to.
func closure(all map[string]map[string]any, name string, used map[string]any) {
	if _, ok := used[name]; ok || all[name] == nil {
		return
	}
	used[name] = all[name]
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				closure(all, strings.TrimPrefix(ref, "#/definitions/"), used)
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(map[string]any(all[name]))
}
