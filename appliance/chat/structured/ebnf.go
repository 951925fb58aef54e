package structured

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// GrammarSource returns the Lark form of a grammar in either form that vLLM's clients
// write. Lark ("rule: …", start symbol start) is returned unchanged; EBNF
// ("rule ::= …", start symbol root) is converted.
func GrammarSource(text string) (string, error) {
	if !isEBNF(text) {
		return text, nil
	}
	g, err := readEBNF(text)
	if err != nil {
		return "", err
	}
	return g.lark("start", "")
}

// isEBNF reports whether a line of s defines a rule with "::=".
func isEBNF(s string) bool {
	for line := range strings.SplitSeq(s, "\n") {
		name, _, found := strings.Cut(line, "::=")
		if found && ruleName(strings.TrimSpace(name)) {
			return true
		}
	}
	return false
}

func ruleName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c|32 < 'a' || c|32 > 'z') && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != ""
}

// ebnf is a parsed EBNF grammar.
type ebnf struct {
	order []string // rule names in order of definition
	rules map[string]*ebnfRule
}

// ebnfWord is a token of a rule's right side: Lark text, or the name of an EBNF rule,
// which lark translates.
type ebnfWord struct {
	text string
	how  string // quantifier: *, {2,3}, …; "": once
	ref  bool   // text is a rule name
}

// ebnfRule is the right side of a rule.
type ebnfRule struct {
	words   []ebnfWord
	depth   int   // open brackets
	bare    bool  // nothing follows the last "|" or "(" yet
	endless bool  // recursive: it leads back to itself, or to a rule that does
	seen    uint8 // state of mark: 0 not visited, 1 in progress, 2 done
	number  int   // index in ebnf.order
}

// readEBNF parses and checks an EBNF grammar.
func readEBNF(s string) (*ebnf, error) {
	g := &ebnf{rules: map[string]*ebnfRule{}}
	var now *ebnfRule
	for s = skipBlank(s); s != ""; s = skipBlank(s) {
		if name, rest := cutName(s); name != "" {
			if rest, is := strings.CutPrefix(skipBlank(rest), "::="); is {
				if g.rules[name] != nil {
					return nil, fmt.Errorf("the rule %s is defined twice", name)
				}
				now = &ebnfRule{bare: true, number: len(g.order)}
				g.order, g.rules[name] = append(g.order, name), now
				s = rest
				continue
			}
		}
		if now == nil {
			return nil, fmt.Errorf("a rule is missing before %.20q", s)
		}
		var err error
		if s, err = now.word(s); err != nil {
			return nil, err
		}
	}
	return g, g.complete()
}

// complete checks that brackets are balanced, that referenced rules are defined, and
// that there is a root rule.
func (g *ebnf) complete() error {
	for name, r := range g.rules {
		if r.depth != 0 {
			return fmt.Errorf("the rule %s has an unclosed bracket", name)
		}
		for _, w := range r.words {
			if w.ref && g.rules[w.text] == nil {
				return fmt.Errorf("the rule %s, which the rule %s uses, is not defined", w.text, name)
			}
		}
	}
	if g.rules["root"] == nil {
		return errors.New("the rule root is not defined")
	}
	return nil
}

// word parses one word of a rule and returns the rest of s.
func (r *ebnfRule) word(s string) (string, error) {
	if name, rest := cutName(s); name != "" {
		r.words, r.bare = append(r.words, ebnfWord{text: name, ref: true}), false
		return rest, nil
	}
	switch c := s[0]; c {
	case '"':
		return r.literal(s)
	case '[':
		return r.class(s)
	case '.':
		r.add(`/(?s:.)/`)
	case '|':
		r.add("|")
		r.bare = true
	case '(':
		if strings.HasPrefix(s, "(?") || strings.HasPrefix(s, "(=") {
			return "", errors.New("EBNF with a look-ahead is not supported")
		}
		r.add("(")
		r.depth++
		r.bare = true
	case ')':
		if r.depth--; r.depth < 0 {
			return "", errors.New("a closing bracket has no opening bracket")
		}
		r.add(")")
	case '*', '+', '?':
		return s[1:], r.repeat(string(c))
	case '{':
		end := strings.IndexByte(s, '}')
		if end < 0 {
			return "", errors.New("a { is not closed")
		}
		how, err := ebnfBounds(s[1:end])
		if err != nil {
			return "", err
		}
		return s[end+1:], r.repeat(how)
	default:
		return "", fmt.Errorf("unexpected text in EBNF: %.20q", s)
	}
	return s[1:], nil
}

// add appends a word to the rule. An empty alternative becomes an explicit "".
func (r *ebnfRule) add(word string) {
	if r.bare && (word == "|" || word == ")") {
		r.words = append(r.words, ebnfWord{text: `""`})
	}
	r.words, r.bare = append(r.words, ebnfWord{text: word}), false
}

func (r *ebnfRule) repeat(how string) error {
	if r.bare || len(r.words) == 0 || r.words[len(r.words)-1].how != "" {
		return fmt.Errorf("%s has nothing to repeat", how)
	}
	r.words[len(r.words)-1].how = how
	return nil
}

// ebnfBounds returns the Lark quantifier of the text between the braces of {n}, {n,},
// {,m} or {n,m}. White space around the numbers is allowed.
func ebnfBounds(text string) (string, error) {
	low, high, list := strings.Cut(text, ",")
	low, high = strings.TrimSpace(low), strings.TrimSpace(high)
	least, most := uint64(0), uint64(math.MaxUint32)
	var err error
	if low != "" {
		least, err = strconv.ParseUint(low, 10, 32)
	}
	if high != "" && err == nil {
		most, err = strconv.ParseUint(high, 10, 32)
	}
	if err != nil || low == "" && high == "" || least > most {
		return "", fmt.Errorf("%.20q is no number of repetitions: write {2}, {2,}, {,5} or {2,5}", "{"+text+"}")
	}
	if !list {
		return "{" + low + "}", nil
	}
	return "{" + low + "," + high + "}", nil
}

// literal parses a quoted string.
func (r *ebnfRule) literal(s string) (string, error) {
	var b strings.Builder
	for rest := s[1:]; rest != ""; {
		if rest[0] == '"' {
			r.add(larkString(b.String()))
			return rest[1:], nil
		}
		c, after, err := ebnfRune(rest)
		if err != nil {
			return "", err
		}
		b.WriteRune(c)
		rest = after
	}
	return "", fmt.Errorf("a string is not closed: %.20q", s)
}

// class parses a character class and appends it as a regular expression.
func (r *ebnfRule) class(s string) (string, error) {
	var b strings.Builder
	rest, not := strings.CutPrefix(s[1:], "^")
	for rest != "" {
		switch {
		case rest[0] == ']':
			word := "/[" + map[bool]string{true: "^"}[not] + b.String() + "]/"
			if b.Len() == 0 {
				if !not {
					return "", errors.New("an empty character class")
				}
				word = `/(?s:.)/`
			}
			r.add(word)
			return rest[1:], nil
		case rest[0] == '-' && b.Len() > 0 && !strings.HasPrefix(rest, "-]"):
			b.WriteByte('-')
			rest = rest[1:]
			continue
		}
		c, after, err := ebnfRune(rest)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, `\x{%x}`, c)
		rest = after
	}
	return "", fmt.Errorf("a character class is not closed: %.20q", s)
}

// ebnfRune parses a character, which may be escaped, and returns the rest of s.
func ebnfRune(s string) (rune, string, error) {
	if s[0] != '\\' {
		c, n := utf8.DecodeRuneInString(s)
		return c, s[n:], nil
	}
	if len(s) < 2 {
		return 0, "", errors.New("a \\ at the end of the grammar")
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	if digits == 0 {
		c, n := utf8.DecodeRuneInString(s[1:])
		if k := strings.IndexRune("nrt", c); k >= 0 {
			c = rune("\n\r\t"[k])
		}
		return c, s[1+n:], nil
	}
	if len(s) < 2+digits {
		return 0, "", fmt.Errorf("an escape sequence is incomplete: %.10q", s)
	}
	c, err := strconv.ParseUint(s[2:2+digits], 16, 32)
	if err != nil || c > utf8.MaxRune {
		return 0, "", fmt.Errorf("%.10q is not a valid character", s)
	}
	return rune(c), s[2+digits:], nil
}

// lark returns the grammar in Lark: root is also named start, and every rule name begins
// with prefix. A rule that is not recursive becomes a terminal, which the lexer matches
// as a whole.
func (g *ebnf) lark(start, prefix string) (string, error) {
	for _, name := range g.order {
		g.mark(name)
	}
	var b strings.Builder
	if start != "" {
		fmt.Fprintf(&b, "%s: %s\n", start, g.name("root", prefix))
	}
	for _, name := range g.order {
		r := g.rules[name]
		var words []string
		for _, w := range r.words {
			if w.ref {
				w.text = g.name(w.text, prefix)
			}
			words = append(words, w.text+w.how)
		}
		if r.bare {
			words = append(words, `""`)
		}
		out := strings.Join(words, " ")
		fmt.Fprintf(&b, "%s: %s\n", g.name(name, prefix), out)
	}
	return b.String(), nil
}

// name returns the Lark name of a rule: lower case for a rule, upper case for a terminal.
func (g *ebnf) name(rule, prefix string) string {
	r := g.rules[rule]
	if r.endless {
		return fmt.Sprintf("%sr%d", prefix, r.number)
	}
	return fmt.Sprintf("%sR%d", strings.ToUpper(prefix), r.number)
}

// mark sets and returns endless of a rule.
func (g *ebnf) mark(name string) bool {
	r := g.rules[name]
	switch r.seen {
	case 1:
		return true // in progress: this is a cycle
	case 2:
		return r.endless
	}
	r.seen = 1
	for _, w := range r.words {
		if w.ref && g.mark(w.text) {
			r.endless = true
		}
	}
	r.seen = 2
	return r.endless
}

// cutName splits off the rule name at the start of s; name is "" if there is none.
func cutName(s string) (name, rest string) {
	n := 0
	for n < len(s) && (ruleName(s[n:n+1]) || n > 0 && (s[n] == '-' || s[n] >= '0' && s[n] <= '9')) {
		n++
	}
	return s[:n], s[n:]
}

// skipBlank removes leading white space and comments.
func skipBlank(s string) string {
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		if !strings.HasPrefix(s, "#") {
			return s
		}
		_, s, _ = strings.Cut(s, "\n")
	}
}
