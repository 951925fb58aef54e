package vapp_test

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// jargon maps words that comments must not contain to what to write instead. The words are regular
// expressions, matched as whole words without regard to case; a space matches a line break too.
var jargon = map[string]string{
	`told|untold|retold|tells`:                     `the verb of the action: "reports", "receives", "returns", "prints"`,
	`foretold|foretells?|foretelling`:              `"predicted", "predict"`,
	`whoever|nobody|somebody|anybody`:              `the role: the caller, the client, the operator`,
	`wish|wishes|wished|wishing`:                   `"request", "option"`,
	`breach|breaches|breached`:                     `"violation"`,
	`astray`:                                       `what goes wrong`,
	`unlent|lent`:                                  `"free", "allocated"`,
	`books`:                                        `"bookkeeping", or the name of the data structure`,
	`(?:held|holds?|holding) (?:\S+ ){0,3}against`: `"compare with", "check"`,
	`(?:lies|lie|lay|lain) (?:in|at|on|beside|before|behind|there|whole)`: `"is in", "is stored at"`,
	`is at rest|knows of|it is they`:                                      `a plain statement`,
}

// jargonNames maps words that names in Go must not contain to what to write instead.
var jargonNames = map[string]string{
	"told": "onProgress, report", "untold": "without…", "foretell": "predict", "foretold": "predicted",
	"whoever": "the role", "nobody": "the role", "somebody": "the role", "anybody": "the role",
	"wish": "option, request", "wishes": "options, requests", "breach": "violation", "breaches": "violations",
	"astray": "failed", "unlent": "free", "books": "the data structure", "room": "buffer, region, capacity",
}

// exception allows a word in one file, where it is no jargon.
type exception struct {
	path   string // of the file
	text   string // in the line of the word
	reason string
}

// exceptions are checked: one that allows nothing is an error.
var exceptions = []exception{}

// finding is a banned word in a comment or a name.
type finding struct {
	path    string
	line    int
	word    string
	instead string
	text    string // the line
}

// TestLanguage checks that no comment of the sources and no name in Go has a word that is always
// jargon.
func TestLanguage(t *testing.T) {
	var found []finding
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(p)
		if d.IsDir() {
			if skipped(rel, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if slices.Contains([]string{".c", ".h", ".cu", ".cuh", ".rs", ".cue"}, path.Ext(rel)) {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			found = append(found, inText(rel, 1, commentsOf(string(data), path.Ext(rel)))...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	set, files := sources(t)
	for _, s := range files {
		found = append(found, inGo(set, s)...)
	}
	used := make([]bool, len(exceptions))
	for _, f := range found {
		i := slices.IndexFunc(exceptions, func(e exception) bool { return e.path == f.path && strings.Contains(f.text, e.text) })
		if i >= 0 {
			used[i] = true
			continue
		}
		t.Errorf("%s:%d: %q: write %s", f.path, f.line, f.word, f.instead)
	}
	for i, e := range exceptions {
		if !used[i] {
			t.Errorf("exception %s %q allows nothing: remove it", e.path, e.text)
		}
		if e.reason == "" {
			t.Errorf("exception %s %q has no reason", e.path, e.text)
		}
	}
}

// inGo returns the findings in the comments and the declared names of a Go file. A comment above
// import "C" is C code, of which only the comments count.
func inGo(set *token.FileSet, s source) []finding {
	var preamble *ast.CommentGroup
	for _, d := range s.file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT && len(g.Specs) == 1 && g.Specs[0].(*ast.ImportSpec).Path.Value == `"C"` {
			preamble = g.Doc
		}
	}
	var out []finding
	for _, g := range s.file.Comments {
		// Comments of a group on successive lines are one text, so that a phrase may wrap.
		var text strings.Builder
		first := set.Position(g.Pos()).Line
		at := first
		for _, c := range g.List {
			for line := set.Position(c.Pos()).Line; at < line; at++ {
				text.WriteByte('\n')
			}
			body := strings.TrimPrefix(c.Text, "//")
			if g == preamble && strings.HasPrefix(c.Text, "/*") {
				body = commentsOf(strings.TrimSuffix(c.Text[2:], "*/"), ".c")
			}
			text.WriteString(body)
			at += strings.Count(body, "\n")
		}
		out = append(out, inText(s.path, first, text.String())...)
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		var names []*ast.Ident
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = n.Names
		case *ast.Field:
			names = n.Names
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				if id, ok := x.(*ast.Ident); ok && n.Tok == token.DEFINE {
					names = append(names, id)
				}
			}
		}
		for _, id := range names {
			for _, w := range words(id.Name) {
				if instead := jargonNames[w]; instead != "" {
					out = append(out, finding{s.path, set.Position(id.Pos()).Line, id.Name, instead, id.Name})
				}
			}
		}
		return true
	})
	return out
}

// jargonPatterns are the compiled words of jargon.
var jargonPatterns = func() map[*regexp.Regexp]string {
	out := map[*regexp.Regexp]string{}
	for words, instead := range jargon {
		words = strings.ReplaceAll(words, " ", `[\s/*]+`)
		out[regexp.MustCompile(`(?i)\b(?:`+words+`)\b`)] = instead
	}
	return out
}()

// inText returns the findings in a text whose first line has this number.
func inText(path string, first int, text string) []finding {
	var out []finding
	for re, instead := range jargonPatterns {
		for _, m := range re.FindAllStringIndex(text, -1) {
			begin := strings.LastIndexByte(text[:m[0]], '\n') + 1
			line, _, _ := strings.Cut(text[begin:], "\n")
			word := strings.Join(strings.Fields(text[m[0]:m[1]]), " ")
			out = append(out, finding{path, first + strings.Count(text[:m[0]], "\n"), word, instead, line})
		}
	}
	slices.SortFunc(out, func(a, b finding) int { return a.line - b.line })
	return out
}

// commentsOf blanks everything in a source except comments and line ends. ext is the file's
// extension: CUE has no block comments, and "'" begins no text in Rust, where it may be a lifetime.
func commentsOf(src, ext string) string {
	out := []byte(src)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	for i := 0; i < len(src); {
		rest := src[i:]
		n := 1
		switch {
		case strings.HasPrefix(rest, "//"):
			i += cut(rest, "\n")
			continue
		case strings.HasPrefix(rest, "/*") && ext != ".cue":
			i += 2 + cut(rest[2:], "*/")
			continue
		case strings.HasPrefix(rest, `"""`) && ext == ".cue":
			n = 6 + cut(rest[3:], `"""`) - 3
		case rest[0] == '"', rest[0] == '\'' && ext != ".rs" && ext != ".cue":
			n = quoted(rest)
		}
		n = min(n, len(rest))
		blank(i, i+n)
		i += n
	}
	return string(out)
}

// cut returns the length of s up to and including the first end.
func cut(s, end string) int {
	if i := strings.Index(s, end); i >= 0 {
		return i + len(end)
	}
	return len(s)
}

// quoted returns the length of the quoted text at the start of s, which ends at its line's end at
// the latest.
func quoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		case '\n':
			return i
		}
	}
	return len(s)
}

// TestLanguageCanFail checks the language test with texts that it must and must not accept.
func TestLanguageCanFail(t *testing.T) {
	for _, c := range []struct {
		ext, src string
		lines    []int
	}{
		{".c", "int a; // it is to" + "ld\n/* no" + "body\n * knows */\n", []int{1, 2}},
		{".c", "char *s = \"to" + "ld // to" + "ld\"; char q = '\"'; // fine\n", nil},
		{".rs", "fn f<'a>() {} // wi" + "sh\n", []int{1}},
		{".cue", "a: \"http://wi" + "sh\" // br" + "each\nb: \"\"\"\n\t// to" + "ld\n\t\"\"\"\n", []int{1}},
		{".h", "// A row is held\n// again" + "st it.\n", []int{1}},
		{".h", "// The lies" + " of the land; a bookshop.\n", nil},
	} {
		var got []int
		for _, f := range inText("x"+c.ext, 1, commentsOf(c.src, c.ext)) {
			got = append(got, f.line)
		}
		if !slices.Equal(got, c.lines) {
			t.Errorf("%q: findings in lines %v, want %v", c.src, got, c.lines)
		}
	}
}
