package schema

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
)

// Below returns the profiles in dir and the folders below it, by path. It omits policies,
// files with only definitions (#X, _x, let), cue.mod, and folders whose name begins with a
// dot. A file that cannot be parsed counts as a profile, so that its error is reported.
func Below(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return problem(Unreadable, path, "%v", reason(err))
		}
		name := d.Name()
		switch {
		case d.IsDir() && path != dir && (name == "cue.mod" || name[0] == '.'):
			return fs.SkipDir
		case !d.IsDir() && IsProfile(path):
			out = append(out, path)
		}
		return nil
	})
	return out, err
}

// IsProfile reports whether a file is a profile, by its name and its content.
func IsProfile(path string) bool {
	name := filepath.Base(path)
	return strings.HasSuffix(name, ".cue") && name[0] != '.' && name != PolicyFile && !defines(path)
}

// defines reports whether a file contains only definitions for other files.
func defines(path string) bool {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxBytes {
		return false
	}
	data, err := os.ReadFile(path)
	if err != nil || withinLimits(path, data) != nil {
		return false
	}
	f, err := parser.ParseFile(path, data)
	if err != nil {
		return false
	}
	found := false
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.Package, *ast.ImportDecl, *ast.CommentGroup, *ast.Attribute:
		case *ast.LetClause:
			found = true
		case *ast.Field:
			name, ident, err := ast.LabelName(d.Label)
			if err != nil || !ident || name[0] != '#' && name[0] != '_' {
				return false
			}
			found = true
		default:
			return false
		}
	}
	return found
}
