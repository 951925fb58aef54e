package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// structuralTag is free text with constrained parts in it: each begins with one of the
// triggers.
type structuralTag struct {
	Structures []struct {
		Begin  string          `json:"begin"`
		Schema json.RawMessage `json:"schema"`
		End    string          `json:"end"`
	} `json:"structures"`
	Triggers []string        `json:"triggers"`
	Format   json.RawMessage `json:"format"`
}

// maxTags bounds structures and triggers.
const maxTags = 256

// TagSource is the AsGrammar of a structural tag:
// {"structures": [{"begin", "schema", "end"}, …], "triggers": [text, …]}. Every begin starts
// with a trigger.
func TagSource(raw json.RawMessage) (string, error) {
	var t structuralTag
	if err := json.Unmarshal(raw, &t); err != nil {
		return "", errors.New(`a structural tag is an object with "structures" and "triggers"`)
	}
	switch {
	case len(t.Format) > 0:
		return "", errors.New(`a structural tag with "format" is not supported, give "structures" and "triggers"`)
	case len(t.Structures) == 0 || len(t.Triggers) == 0:
		return "", errors.New(`a structural tag needs at least one of "structures" and of "triggers"`)
	case len(t.Structures) > maxTags || len(t.Triggers) > maxTags:
		return "", fmt.Errorf("a structural tag has at most %d structures and triggers", maxTags)
	}
	of := make([][]int, len(t.Triggers)) // the structures of each trigger
	for i, s := range t.Structures {
		k := -1
		for j, trigger := range t.Triggers {
			if trigger != "" && strings.HasPrefix(s.Begin, trigger) && (k < 0 || len(trigger) > len(t.Triggers[k])) {
				k = j
			}
		}
		if k < 0 {
			return "", fmt.Errorf("no trigger begins the structure %q", s.Begin)
		}
		of[k] = append(of[k], i)
	}
	return t.grammar(of)
}

// grammar writes it: text up to a trigger, then what that allows, again and again.
func (t *structuralTag) grammar(of [][]int) (string, error) {
	var b strings.Builder
	var tags []string
	for k, list := range of {
		if len(list) == 0 {
			continue
		}
		var ways []string
		for _, i := range list {
			s := t.Structures[i]
			schema, err := SchemaSource(s.Schema, SchemaOptions{})
			if err != nil {
				return "", fmt.Errorf("structure %q: %w", s.Begin, err)
			}
			way := fmt.Sprintf("s%d", i)
			if rest := strings.TrimPrefix(s.Begin, t.Triggers[k]); rest != "" {
				way = text(rest) + " " + way
			}
			if s.End != "" {
				way += " " + text(s.End)
			}
			ways = append(ways, way)
			fmt.Fprintf(&b, "s%d: %%json %s\n", i, schema)
		}
		tags = append(tags, fmt.Sprintf("t%d", k))
		fmt.Fprintf(&b, "t%d: trig%d (%s)\ntrig%d[lazy]: TEXT %s\n", k, k, strings.Join(ways, " | "), k, text(t.Triggers[k]))
	}
	return fmt.Sprintf("start: (%s)* end\nend: TEXT\nTEXT: /(.|\\n)*/\n%s", strings.Join(tags, " | "), b.String()), nil
}
