package schema

import (
	"strings"

	"cuelang.org/go/cue"
	cueerrors "cuelang.org/go/cue/errors"
)

func explain(err error, v cue.Value, src origin) error {
	var list []Problem
	for _, e := range cueerrors.Errors(err) {
		path := strings.Join(e.Path(), ".")
		list = append(list, Problem{Kind: Invalid, Pos: src.position(path), Path: path, Message: strings.ReplaceAll(e.Error(), "\n", " ")})
	}
	return newError(list)
}

func explainLoad(err error, file string) error {
	var list []Problem
	for _, e := range cueerrors.Errors(err) {
		p := e.Position().Position()
		list = append(list, Problem{Kind: Syntax, Pos: Position{shown(p.Filename), p.Line, p.Column}, Message: strings.ReplaceAll(e.Error(), "\n", " ")})
	}
	return newError(list)
}
