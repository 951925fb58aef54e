package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"cuelang.org/go/cue"
)

// Access holds serve.apiKeys and serve.tls of a profile. It can often be read from a
// profile that is refused because of another field.
type Access struct {
	// Keys are the valid elements of serve.apiKeys.
	Keys []Key
	// Listed: the profile has a non-empty list.
	Listed bool
	// Whole: neither the schema nor a policy refuses serve.apiKeys. It is false if the
	// profile has policies and the schema refuses it, because policies are then not evaluated.
	Whole bool
	// TLS is nil if the profile has none, or an invalid one.
	TLS *TLS

	origin origin
}

// Path resolves a path as Profile.Path does.
func (a *Access) Path(text string) string { return a.origin.path(text) }

// Reject returns an error as Profile.Reject does.
func (a *Access) Reject(path, format string, args ...any) *Error {
	return a.origin.reject(path, format, args...)
}

// Access returns the keys and the certificate of p.
func (p *Profile) Access() *Access { return accessOf(p) }

func accessOf(p *Profile) *Access {
	return &Access{Keys: p.Serve.APIKeys, Listed: len(p.Serve.APIKeys) > 0, Whole: true, TLS: p.Serve.TLS, origin: p.origin}
}

// without returns a without the parts that policies refuse with err.
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

// access reads keys and certificate of an invalid profile; nil if they cannot be evaluated.
// unbound: no policy applies to the profile.
func (x *explainer) access(v cue.Value, unbound bool) *Access {
	a := &Access{origin: x.src, Whole: unbound}
	if t := v.LookupPath(cue.ParsePath("serve.tls")); unbound && t.Exists() {
		if tls := new(TLS); decodeValid(t, tls) {
			a.TLS = tls
		}
	}
	list := v.LookupPath(cue.ParsePath("serve.apiKeys"))
	if decodeValid(list, &a.Keys) {
		a.Listed = len(a.Keys) > 0
		return a
	}
	return a.elements(x)
}

// decodeValid decodes a value into to. It returns false if the value is invalid or
// incomplete.
func decodeValid(v cue.Value, to any) bool {
	text, err := v.MarshalJSON()
	return err == nil && v.Validate(cue.Concrete(true), cue.Final()) == nil && json.Unmarshal(text, to) == nil
}

// elements reads the keys of the list in the profile's own file one by one; nil if it has no
// list.
func (a *Access) elements(x *explainer) *Access {
	a.Keys, a.Whole = nil, false
	for i := 0; ; i++ {
		assigned := x.src.assigned[fmt.Sprintf("serve.apiKeys[%d]", i)]
		if len(assigned) == 0 {
			break
		}
		a.Listed = true
		for _, s := range assigned {
			v := x.lang.key.Unify(x.lang.profile.Context().BuildExpr(s.value))
			if k := (Key{}); decodeValid(v, &k) {
				a.Keys = append(a.Keys, k)
			}
		}
	}
	if !a.Listed {
		return nil
	}
	return a
}
