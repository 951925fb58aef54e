package models

import (
	"fmt"
	"regexp"
	"strings"
)

// Limits on the list of modules that are not quantized. Lists of names are long (one for each
// expert of each layer), lists of patterns are short.
const (
	maxSkipped  = 1 << 18
	maxPatterns = 2048 // total bytes
)

// patterns matches modules by name, as modules_to_not_convert, ignored_layers and ignore do. A
// plain name matches that module, modules whose names end with it, and all modules inside of it.
// "*" in a name matches any characters. "re:" starts a regular expression that must match at the
// beginning of the module's name (compressed-tensors).
type patterns struct {
	names map[string]bool
	globs []string // each also with ".*" after it
	exprs []*regexp.Regexp
}

func patternsOf(list []string) (patterns, error) {
	p := patterns{names: map[string]bool{}}
	if len(list) > maxSkipped {
		return p, &UnsupportedError{fmt.Sprintf("quantization_config with %d modules that are not converted", len(list)), fmt.Sprintf("at most %d are read", maxSkipped)}
	}
	length := 0
	for _, s := range list {
		expr, isExpr := strings.CutPrefix(s, "re:")
		if !isExpr && !strings.Contains(s, "*") {
			p.names[s] = true
			continue
		}
		if length += len(s); length > maxPatterns {
			return p, &UnsupportedError{"quantization_config pattern " + clip(s), fmt.Sprintf("at most %d bytes of patterns are read", maxPatterns)}
		}
		if !isExpr {
			p.globs = append(p.globs, s, s+".*")
			continue
		}
		e, err := regexp.Compile("^(?:" + expr + ")")
		if err != nil {
			return p, &UnsupportedError{"quantization_config pattern " + clip(s), "the regular expression is not valid here: " + err.Error()}
		}
		p.exprs = append(p.exprs, e)
	}
	return p, nil
}

// match reports whether a pattern matches the module.
func (p patterns) match(module string) bool {
	for from, more := module, true; more; _, from, more = strings.Cut(from, ".") {
		for name := from; name != "" && len(p.names) > 0; name = parent(name) {
			if p.names[name] {
				return true
			}
		}
		for _, g := range p.globs {
			if glob(g, from) {
				return true
			}
		}
	}
	for _, e := range p.exprs {
		if e.MatchString(module) {
			return true
		}
	}
	return false
}

// glob reports whether s matches the pattern, in which "*" matches any bytes. Only the last star
// needs to backtrack: extending an earlier one cannot help.
func glob(pattern, s string) bool {
	star, from := -1, 0 // the last star, and the end of the bytes it matches
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p, i = p+1, i+1
		case star >= 0:
			from++
			p, i = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// parent returns the module that contains m: "a.b" for "a.b.c", "" for "a".
func parent(m string) string {
	if i := strings.LastIndexByte(m, '.'); i >= 0 {
		return m[:i]
	}
	return ""
}
