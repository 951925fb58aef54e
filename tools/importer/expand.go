package importer

import "strings"

// word is one argument with its place.
type word struct {
	text    string
	missing string // the first reference in it that cannot be expanded, such as $MODEL; or ""
	at      Place
}

// variable is an environment variable of the command's process.
type variable struct {
	name  string
	value word
}

// variables are in the order of assignment; a later one overrides an earlier one.
type variables []variable

// lookup returns the value of a variable.
func (v variables) lookup(name string) (word, bool) {
	for i := len(v) - 1; i >= 0 && name != ""; i-- {
		if v[i].name == name {
			return v[i].value, true
		}
	}
	return word{}, false
}

// words expands the variables in the words of a command. As a shell does, it splits expanded text
// outside quotes at blanks. count numbers the words of a single line; nil: words have line numbers.
// Its error is an *Error.
func (v variables) words(raw []rawWord, at source, count *int) ([]word, error) {
	var out []word
	size := 0
	for _, r := range raw {
		place := at.place(r.line)
		if count != nil {
			*count++
			place.Arg = *count
		}
		got := v.expand(r, place)
		for _, w := range got {
			if size += len(w.text); len(w.text) > maxWord || size > maxBytes {
				return nil, failure(TooLarge, place, "", "a word has more than %d bytes, or a command more than %d", maxWord, maxBytes)
			}
		}
		if out = append(out, got...); len(out) > maxWords {
			return nil, failure(TooLarge, place, "", "a command has more than %d words", maxWords)
		}
	}
	return out, nil
}

// expand expands one word to any number of words.
func (v variables) expand(r rawWord, at Place) []word {
	var done []word
	var text strings.Builder
	w := word{at: at}
	split := !r.assigns()
	empty := true // only references to empty variables so far
	end := func() {
		if w.text = text.String(); w.text != "" || !empty {
			done = append(done, w)
		}
		text.Reset()
		w, empty = word{at: at}, true
	}
	for _, p := range r.parts {
		value, missing := v.value(p)
		if missing != "" && w.missing == "" {
			w.missing = missing
		}
		if text.Len()+len(value) > 2*maxWord { // the caller refuses it
			value = value[:min(len(value), 2*maxWord-text.Len())]
		}
		if !p.ref || p.quoted || missing != "" || !split {
			empty = empty && p.ref && !p.quoted && value == ""
			text.WriteString(value)
			continue
		}
		pieces := strings.Fields(value)
		if len(pieces) == 0 || strings.IndexByte(" \t\n", value[0]) >= 0 {
			if value != "" {
				end()
			}
		}
		for i, f := range pieces {
			if i > 0 {
				end()
			}
			text.WriteString(f)
			empty = false
		}
		if len(pieces) > 0 && strings.IndexByte(" \t\n", value[len(value)-1]) >= 0 {
			end()
		}
	}
	if len(r.parts) == 0 { // '' or ""
		empty = false
	}
	end()
	return done
}

// value returns the text of a part; missing is the reference if it cannot be expanded.
func (v variables) value(p part) (text, missing string) {
	if !p.ref {
		return p.text, ""
	}
	if w, ok := v.lookup(p.name); ok && (w.text != "" || !p.has) {
		return w.text, w.missing
	}
	if p.has {
		return p.fallback, ""
	}
	return p.text, p.text
}

// assigns reports whether the word is NAME=value.
func (r rawWord) assigns() bool {
	if len(r.parts) == 0 || r.parts[0].ref || r.parts[0].quoted {
		return false
	}
	n := nameLen(r.parts[0].text)
	return n > 0 && strings.HasPrefix(r.parts[0].text[n:], "=")
}

// assignment splits NAME=value.
func assignment(w word) (variable, bool) {
	n := nameLen(w.text)
	if n == 0 || !strings.HasPrefix(w.text[n:], "=") {
		return variable{}, false
	}
	value := w
	value.text = w.text[n+1:]
	return variable{w.text[:n], value}, true
}

// assignments returns the words of the form NAME=value.
func assignments(words []word) variables {
	var out variables
	for _, w := range words {
		if v, ok := assignment(w); ok {
			out = append(out, v)
		}
	}
	return out
}

// maxVars bounds the variables of a command.
const maxVars = 1024

// within refuses more than maxVars variables. Its error is an *Error.
func (v variables) within(at Place) error {
	if len(v) > maxVars {
		return failure(TooLarge, at, "", "more than %d variables", maxVars)
	}
	return nil
}

// unexpanded marks a reference in a word that is not expanded, such as a word of an exec list, as
// missing if it looks intended.
func (v variables) unexpanded(w word) word {
	if i := strings.IndexByte(w.text, '$'); i >= 0 {
		rest := w.text[i:]
		n := 1 + nameLen(rest[1:])
		if strings.HasPrefix(rest, "${") {
			n = 1 + closing(rest[1:]+"}", '{', '}') + 1
		}
		if n > 1 && w.missing == "" {
			w.missing = rest[:min(n, len(rest))]
		}
	}
	return w
}

// kubernetes puts variables into $(NAME), and makes $$ of $$(NAME) one $.
func (v variables) kubernetes(w word) word {
	return v.between(w, "(", ")")
}

// compose puts variables into $NAME, ${NAME} and ${NAME:-else}, as docker
// compose does from its own environment, and makes one $ of $$.
func (v variables) compose(w word) word {
	return v.between(w, "{", "}")
}

func (v variables) between(w word, open, shut string) word {
	var b strings.Builder
	rest := w.text
	for {
		i := strings.IndexByte(rest, '$')
		if i < 0 || b.Len() > maxWord {
			break
		}
		b.WriteString(rest[:i])
		rest = rest[i:]
		if strings.HasPrefix(rest, "$$") && (open == "{" || strings.HasPrefix(rest, "$$(")) {
			b.WriteByte('$')
			rest = rest[2:]
			if open == "(" {
				b.WriteByte('(')
				rest = rest[1:]
			}
			continue
		}
		p := part{ref: true, text: "$"}
		if end := strings.Index(rest, shut); strings.HasPrefix(rest[1:], open) && end > 0 {
			p.text = rest[:end+1]
			p.braces(rest[2:end])
		} else if n := nameLen(rest[1:]); n > 0 && open == "{" {
			p.text, p.name = rest[:1+n], rest[1:1+n]
		} else {
			b.WriteByte('$')
			rest = rest[1:]
			continue
		}
		value, missing := v.value(p)
		if w.missing == "" {
			w.missing = missing
		}
		b.WriteString(value)
		rest = rest[len(p.text):]
	}
	b.WriteString(rest)
	w.text = b.String()
	return w
}
