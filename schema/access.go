package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"cuelang.org/go/cue"
)

// Access is what a profile says of serve.apiKeys and serve.tls. It is known of many
// profiles that are refused for another field.
type Access struct {
	// Keys are the elements of serve.apiKeys that the schema takes.
	Keys []Key
	// Listed is true where the profile has a list that is not empty.
	Listed bool
	// Whole is true where neither the schema nor a policy refuses serve.apiKeys. The
	// policies of a profile that the schema refuses are not evaluated: it is false.
	Whole bool
	// TLS is nil where the profile has none, or one that is refused.
	TLS *TLS

	origin origin
}

// Path is Profile.Path.
func (a *Access) Path(text string) string { return a.origin.path(text) }

// Reject is Profile.Reject.
func (a *Access) Reject(path, format string, args ...any) *Error {
	return a.origin.reject(path, format, args...)
}

// Access is what p says of keys and its certificate.
func (p *Profile) Access() *Access { return accessOf(p) }

func accessOf(p *Profile) *Access {
	return &Access{Keys: p.Serve.APIKeys, Listed: len(p.Serve.APIKeys) > 0, Whole: true, TLS: p.Serve.TLS, origin: p.origin}
}

// without is a less what policies refuse of it; err is theirs.
func (a *Access) without(err error) *Access {
	var e *Error
	if !errors.As(err, &e) {
		a.Whole, a.TLS = false, nil
		return a
	}
	for _, p := range e.List {
		all := p.Kind != Policy || p.Path == "" || p.Path == "serve"
		if all || strings.HasPrefix(p.Path, "serve.apiKeys") {
			a.Whole = false
		}
		if all || strings.HasPrefix(p.Path, "serve.tls") {
			a.TLS = nil
		}
	}
	return a
}

// access reads keys and certificate of a value that is wrong elsewhere or here; nil where
// they cannot be evaluated. unbound: no policy binds the profile.
func (x *explainer) access(v cue.Value, unbound bool) *Access {
	a := &Access{origin: x.src, Whole: unbound}
	if t := v.LookupPath(cue.ParsePath("serve.tls")); unbound && t.Exists() {
		if text, err := t.MarshalJSON(); err == nil && t.Validate(cue.Concrete(true), cue.Final()) == nil {
			if a.TLS = new(TLS); json.Unmarshal(text, a.TLS) != nil {
				a.TLS = nil
			}
		}
	}
	list := v.LookupPath(cue.ParsePath("serve.apiKeys"))
	if text, err := list.MarshalJSON(); err == nil && list.Validate(cue.Concrete(true), cue.Final()) == nil && json.Unmarshal(text, &a.Keys) == nil {
		a.Listed = len(a.Keys) > 0
		return a
	}
	return a.elements(x)
}

// elements reads the list of keys one by one, as the profile's own file has it; nil where it
// has no list.
func (a *Access) elements(x *explainer) *Access {
	a.Keys, a.Whole = nil, false
	for i := 0; ; i++ {
		said := x.src.said[fmt.Sprintf("serve.apiKeys[%d]", i)]
		if len(said) == 0 {
			break
		}
		a.Listed = true
		for _, s := range said {
			v := x.lang.key.Unify(x.lang.profile.Context().BuildExpr(s.value))
			text, err := v.MarshalJSON()
			var k Key
			if err == nil && v.Validate(cue.Concrete(true), cue.Final()) == nil && json.Unmarshal(text, &k) == nil {
				a.Keys = append(a.Keys, k)
			}
		}
	}
	if !a.Listed {
		return nil
	}
	return a
}
