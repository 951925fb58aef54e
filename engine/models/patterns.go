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
	maxPatterns = 64
	maxPattern  = 1024 // bytes of one
)

// patterns picks modules by name, as modules_to_not_convert, ignored_layers and
// ignore do: a plain name is a module, or its last parts, or a module above it;
// "*" in a name stands for anything; "re:" begins a regular expression that the
// module's name begins with (compressed-tensors).
type patterns struct {
	names map[string]bool
	globs []*regexp.Regexp
}

func patternsOf(list []string) (patterns, error) {
	p := patterns{names: map[string]bool{}}
	if len(list) > maxSkipped {
		return p, &UnsupportedError{fmt.Sprintf("quantization_config with %d modules that are not converted", len(list)), fmt.Sprintf("at most %d are read", maxSkipped)}
	}
	for _, s := range list {
		re, isRegexp := strings.CutPrefix(s, "re:")
		if !isRegexp && !strings.Contains(s, "*") {
			p.names[s] = true
			continue
		}
		if len(p.globs) == maxPatterns || len(s) > maxPattern {
			return p, &UnsupportedError{"quantization_config pattern " + clip(s), fmt.Sprintf("at most %d patterns of %d bytes are read", maxPatterns, maxPattern)}
		}
		if isRegexp {
			re = "^(?:" + re + ")"
		} else {
			re = `(?:^|\.)` + strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, ".*") + `(?:\.|$)`
		}
		g, err := regexp.Compile(re)
		if err != nil {
			return p, &UnsupportedError{"quantization_config pattern " + clip(s), "it is no regular expression that is read: " + err.Error()}
		}
		p.globs = append(p.globs, g)
	}
	return p, nil
}

// match says that a pattern picks the module.
func (p patterns) match(module string) bool {
	for from := module; len(p.names) > 0; {
		for name := from; name != ""; name = above(name) {
			if p.names[name] {
				return true
			}
		}
		_, rest, more := strings.Cut(from, ".")
		if !more {
			break
		}
		from = rest
	}
	for _, g := range p.globs {
		if g.MatchString(module) {
			return true
		}
	}
	return false
}

// above is the module that holds m: "a.b" for "a.b.c", "" for "a".
func above(m string) string {
	if i := strings.LastIndexByte(m, '.'); i >= 0 {
		return m[:i]
	}
	return ""
}
