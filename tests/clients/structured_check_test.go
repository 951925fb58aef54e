//go:build clients

package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// checks are parsers for grammars that are not regular.
var checks = map[string]func(string) error{
	"expression": func(s string) error {
		e, err := parser.ParseExpr(s)
		if err != nil {
			return err
		}
		ast.Inspect(e, func(n ast.Node) bool {
			if n, is := n.(*ast.BasicLit); is && len(n.Value) > 2 {
				err = fmt.Errorf("%s is too long a number", n.Value)
			}
			return true
		})
		return err
	},
	"brackets": func(s string) error {
		var open []rune
		for _, c := range s {
			if strings.ContainsRune("([{", c) {
				open = append(open, c)
				continue
			}
			k := strings.IndexRune(")]}", c)
			if k < 0 || len(open) == 0 || open[len(open)-1] != rune("([{"[k]) {
				return fmt.Errorf("%q closes nothing", c)
			}
			open = open[:len(open)-1]
		}
		if len(open) > 0 || s == "" {
			return errors.New("brackets are open")
		}
		return nil
	},
}

// checker returns the check of a case's replies, taken from its request.
func (c *structuredCase) checker(t *testing.T) func(string) error {
	t.Helper()
	if f := checks[c.Check]; f != nil {
		return f
	}
	if c.Check != "" {
		return matches(regexp.MustCompile(c.Check))
	}
	so, _ := c.Ask["structured_outputs"].(map[string]any)
	if r, is := so["regex"].(string); is {
		return matches(regexp.MustCompile(`^(?:` + r + `)$`))
	}
	if list, is := so["choice"].([]any); is {
		return func(s string) error {
			if !slices.Contains(list, any(s)) {
				return errors.New("it is no choice")
			}
			return nil
		}
	}
	schema := c.schema()
	if schema == nil {
		t.Fatalf("%s: nothing says how to check it", c.Name)
	}
	return valid(t, c.Name, schema, so["disable_any_whitespace"] == true)
}

// schema returns the JSON schema of a request.
func (c *structuredCase) schema() any {
	v, _ := c.Ask["guided_json"]
	if so, is := c.Ask["structured_outputs"].(map[string]any); is {
		v = so["json"]
		if so["disable_additional_properties"] == true {
			v.(map[string]any)["additionalProperties"] = false
			defer delete(v.(map[string]any), "additionalProperties")
			b, _ := json.Marshal(v)
			_ = json.Unmarshal(b, &v)
		}
	}
	if rf, is := c.Ask["response_format"].(map[string]any); is {
		v = rf["json_schema"].(map[string]any)["schema"]
	}
	if text, is := v.(string); is {
		_ = json.Unmarshal([]byte(text), &v)
	}
	return v
}

func matches(r *regexp.Regexp) func(string) error {
	return func(s string) error {
		if !r.MatchString(s) {
			return fmt.Errorf("it does not match %s", r)
		}
		return nil
	}
}

// valid checks a reply against a JSON schema. Compact replies have spaces only after , and :.
func valid(t *testing.T, name string, schema any, compact bool) func(string) error {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("mem:"+name, schema); err != nil {
		t.Fatal(name, err)
	}
	s, err := c.Compile("mem:" + name)
	if err != nil {
		t.Fatal(name, err)
	}
	return func(text string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		if compact && regexp.MustCompile(`\s\s|[^,:]\s`).MatchString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(text, `""`)) {
			return errors.New("it has white space")
		}
		return s.Validate(v)
	}
}
