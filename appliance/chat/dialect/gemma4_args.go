package dialect

import "strings"

// gemmaArgs reads the pairs of a call's object, its opening bracket excluded. A
// string value whose type is string goes out as it comes, every other value when
// its end is there: a bare value may still grow.
type gemmaArgs struct {
	out    *sink
	schema schema

	at     gemmaPlace
	quoted bool   // between <|"|>
	some   bool   // a pair was given out
	key    string // as far as it has come
	raw    []byte // of the value: text, and quoteByte for <|"|>
	depth  int    // of brackets in it
	live   bool   // the value is given out as it comes
}

type gemmaPlace uint8

const (
	gemmaKey gemmaPlace = iota
	gemmaBefore
	gemmaBare
	gemmaText   // one quoted string
	gemmaNested // an object or a list
	gemmaAfter
)

// quoteByte stands for <|"|> in a value that is kept; it is in no UTF-8 text.
const quoteByte = 0xff

// read takes text up to the bracket that closes the object.
func (a *gemmaArgs) read(s string) (n int, done bool) {
	for n < len(s) {
		if a.quoted {
			a.string(s[n:])
			return len(s), false
		}
		c := s[n]
		n++
		if a.plain(c) {
			return n, true
		}
	}
	return n, false
}

// string takes text between quotes.
func (a *gemmaArgs) string(s string) {
	switch {
	case a.at == gemmaKey:
		a.key += s
	case a.live:
		a.out.arguments(string(appendEscaped(nil, s)))
	default:
		a.raw = append(a.raw, s...)
	}
}

// plain takes a byte outside quotes and reports the end of the object.
func (a *gemmaArgs) plain(c byte) bool {
	switch a.at {
	case gemmaKey:
		switch c {
		case ':':
			a.at = gemmaBefore
		case ',', '}':
			a.pair()
			return c == '}'
		default:
			a.key += string([]byte{c})
		}
	case gemmaNested:
		a.raw = append(a.raw, c)
		switch c {
		case '{', '[':
			a.depth++
		case '}', ']':
			if a.depth--; a.depth == 0 {
				a.at = gemmaAfter
			}
		}
	case gemmaBefore:
		return a.begin(c)
	default: // within a bare value, or behind a value
		if c == ',' || c == '}' || c == ']' {
			a.pair()
			return c == '}'
		}
		if a.at == gemmaBare {
			a.raw = append(a.raw, c)
		}
	}
	return false
}

// begin takes the first byte of a value that is not quoted.
func (a *gemmaArgs) begin(c byte) bool {
	switch c {
	case ' ', '\n', '\t', '\r':
	case '{', '[':
		a.at, a.depth, a.raw = gemmaNested, 1, append(a.raw, c)
	case ',', '}':
		a.pair()
		return c == '}'
	default:
		a.at, a.raw = gemmaBare, append(a.raw, c)
	}
	return false
}

// quote takes a <|"|>.
func (a *gemmaArgs) quote() {
	a.quoted = !a.quoted
	switch a.at {
	case gemmaNested, gemmaBare, gemmaAfter:
		a.raw = append(a.raw, quoteByte)
	case gemmaBefore:
		a.at = gemmaText
		k := a.kinds()
		if a.live = k == 0 || k == isString; a.live {
			a.lead()
			a.out.arguments(`"`)
		}
	case gemmaText:
		if a.live {
			a.out.arguments(`"`)
		} else {
			a.lead()
			a.out.arguments(convert(string(a.raw), a.kinds()))
		}
		a.at, a.raw = gemmaAfter, nil
		a.key = ""
	}
}

func (a *gemmaArgs) kinds() kinds { return a.schema.property(a.name()).kinds() }

// name is the key without blanks.
func (a *gemmaArgs) name() string { return strings.TrimSpace(a.key) }

// lead writes a comma and the key.
func (a *gemmaArgs) lead() {
	comma := ", "
	if !a.some {
		comma = ""
	}
	a.some = true
	a.out.arguments(comma + quote(a.name()) + ": ")
}

// pair ends a pair: behind a quoted string it is out already.
func (a *gemmaArgs) pair() {
	if a.name() != "" {
		v := value{schema: a.schema.property(a.name()), text: string(a.raw)}
		text := v.all()
		a.lead()
		a.out.arguments(text)
	}
	a.at, a.key, a.raw, a.live, a.depth = gemmaKey, "", nil, false, 0
}

// end closes what the text left open.
func (a *gemmaArgs) end() {
	switch {
	case a.at == gemmaKey: // a key that was cut
	case a.at == gemmaText:
		a.quote()
	default:
		a.pair()
	}
}

// value reads one whole value that is not a single quoted string.
type value struct {
	schema schema
	text   string // what is left of it
	depth  int
}

// maxDepth bounds how deep values nest: what lies deeper stays text.
const maxDepth = 64

// all converts the whole text.
func (v *value) all() string {
	t := strings.TrimSpace(v.text)
	k := v.schema.kinds()
	nested := t != "" && (t[0] == '{' || t[0] == '[') && (k == 0 || k&(isObject|isArray) != 0)
	if !nested {
		return convert(spelled(t), k)
	}
	v.text = t
	return string(v.value(nil, v.schema))
}

// spelled puts quotes where <|"|> was.
func spelled(t string) string { return strings.ReplaceAll(t, string([]byte{quoteByte}), `"`) }

// value appends the JSON of the value at the start of the text.
func (v *value) value(b []byte, s schema) []byte {
	v.text = strings.TrimLeft(v.text, " \t\r\n")
	switch {
	case v.text == "":
		return append(b, `""`...)
	case v.text[0] == quoteByte:
		return append(b, literal(v.quoted(), s)...)
	case v.depth == maxDepth:
		rest := v.text
		v.text = ""
		return appendQuoted(b, spelled(rest))
	case v.text[0] == '{':
		return v.object(b, s)
	case v.text[0] == '[':
		return v.list(b, s)
	}
	return append(b, literal(v.bare(), s)...)
}

// literal is a text by its declared type.
func literal(text string, s schema) string {
	return convert(text, s.kinds())
}

// quoted takes a string with its quotes.
func (v *value) quoted() string {
	text, rest, _ := strings.Cut(v.text[1:], string([]byte{quoteByte}))
	v.text = rest
	return text
}

// bare takes what stands before a delimiter.
func (v *value) bare() string {
	n := strings.IndexAny(v.text, ",}]")
	if n < 0 {
		n = len(v.text)
	}
	t := v.text[:n]
	v.text = v.text[n:]
	return strings.TrimSpace(spelled(t))
}

// next skips to the next element and reports that there is one.
func (v *value) next(shut byte) bool {
	v.text = strings.TrimLeft(v.text, " \t\r\n,")
	if v.text == "" {
		return false
	}
	if c := v.text[0]; c == shut || c == '}' || c == ']' {
		v.text = v.text[1:]
		return false
	}
	return true
}

func (v *value) object(b []byte, s schema) []byte {
	v.text, v.depth = v.text[1:], v.depth+1
	b = append(b, '{')
	for first := true; v.next('}'); first = false {
		if !first {
			b = append(b, ", "...)
		}
		key := v.key()
		b = append(appendQuoted(b, key), ": "...)
		if v.text == "" || v.text[0] != ':' {
			b = append(b, `""`...)
			continue
		}
		if v.text = strings.TrimLeft(v.text[1:], " \t\r\n"); v.text != "" && strings.IndexByte(",}", v.text[0]) >= 0 {
			b = append(b, `""`...)
			continue
		}
		b = v.value(b, s.property(key))
	}
	v.depth--
	return append(b, '}')
}

// key takes what stands before a colon.
func (v *value) key() string {
	if v.text[0] == quoteByte {
		key := v.quoted()
		v.text = strings.TrimLeft(v.text, " \t\r\n")
		return key
	}
	n := strings.IndexAny(v.text, ":,}]")
	if n < 0 {
		n = len(v.text)
	}
	key := strings.TrimSpace(spelled(v.text[:n]))
	v.text = v.text[n:]
	return key
}

func (v *value) list(b []byte, s schema) []byte {
	v.text, v.depth = v.text[1:], v.depth+1
	b = append(b, '[')
	for first := true; v.next(']'); first = false {
		if !first {
			b = append(b, ", "...)
		}
		b = v.value(b, s.item())
	}
	v.depth--
	return append(b, ']')
}
