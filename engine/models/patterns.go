package models

import (
	"fmt"
	"regexp"
	"strings"
)

// Bounds of a list of modules that are not quantized. Lists of names are long
// (one for each expert of each layer), patterns are few.
const (
	maxSkipped  = 1 << 18
	maxPatterns = 2048 // bytes of all
)

// patterns picks modules by name, as modules_to_not_convert, ignored_layers and
// ignore do: a plain name is a module, or its last parts, or a module above it;
// "*" in a name stands for anything; "re:" begins a regular expression that the
// module's name begins with (compressed-tensors).
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
			return p, &UnsupportedError{"quantization_config pattern " + clip(s), "it is no regular expression that is read: " + err.Error()}
		}
		p.exprs = append(p.exprs, e)
	}
	return p, nil
}

// match says that a pattern picks the module.
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

// glob says that s is the pattern, in which "*" stands for any bytes. What a star
// stands for grows only when the rest does not match: earlier stars need not change.
func glob(pattern, s string) bool {
	star, from := -1, 0 // the last star, and what follows what it stands for
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

// above is the module that holds m: "a.b" for "a.b.c", "" for "a".
func parent(m string) string {
	if i := strings.LastIndexByte(m, '.'); i >= 0 {
		return m[:i]
	}
	return ""
}
