package dialect

import "strings"

// gemmaArgs parses the pairs of a call's object after its opening bracket. A quoted value
// of a parameter of type string is reported piece by piece; any other value is reported when
// it is complete.
type gemmaArgs struct {
	out    *sink
	schema schema

	at     gemmaPlace
	quoted bool   // between <|"|>
	some   bool   // a pair was reported
	key    string // the key so far
	raw    []byte // the value so far: text, and quoteByte for <|"|>
	depth  int    // open brackets in the value
	live   bool   // the value is reported piece by piece
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

// quoteByte stands for <|"|> in a value. No UTF-8 text contains it.
const quoteByte = 0xff

// read parses text up to the bracket that closes the object.
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

// string parses text between quotes.
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

// plain parses a byte outside quotes and reports whether it ends the object.
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
	default: // inside an unquoted value, or after a value
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

// begin parses the first byte of an unquoted value.
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

// quote handles a <|"|>.
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

// name returns the key without white space.
func (a *gemmaArgs) name() string { return strings.TrimSpace(a.key) }

// lead reports a comma and the key.
func (a *gemmaArgs) lead() {
	comma := ", "
	if !a.some {
		comma = ""
	}
	a.some = true
	a.out.arguments(comma + quote(a.name()) + ": ")
}

// pair ends a pair and reports it, unless it was a quoted string, which is already reported.
func (a *gemmaArgs) pair() {
	if a.name() != "" {
		v := value{schema: a.schema.property(a.name()), text: string(a.raw)}
		text := v.all()
		a.lead()
		a.out.arguments(text)
	}
	a.at, a.key, a.raw, a.live, a.depth = gemmaKey, "", nil, false, 0
}

// end ends an incomplete pair at the end of the text.
func (a *gemmaArgs) end() {
	switch {
	case a.at == gemmaKey: // an incomplete key
	case a.at == gemmaText:
		a.quote()
	default:
		a.pair()
	}
}

// value parses one complete value that is not a single quoted string.
type value struct {
	schema schema
	text   string // the rest of the value
	depth  int
}

// maxDepth bounds the nesting of values; deeper parts stay text.
const maxDepth = 64

// all returns the JSON of the whole text.
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

// spelled returns the text with quotes in place of <|"|>.
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

// literal returns the JSON of a text by its declared type.
func literal(text string, s schema) string {
	return convert(text, s.kinds())
}

// quoted parses a quoted string.
func (v *value) quoted() string {
	text, rest, _ := strings.Cut(v.text[1:], string([]byte{quoteByte}))
	v.text = rest
	return text
}

// bare parses an unquoted value up to a delimiter.
func (v *value) bare() string {
	n := strings.IndexAny(v.text, ",}]")
	if n < 0 {
		n = len(v.text)
	}
	t := v.text[:n]
	v.text = v.text[n:]
	return strings.TrimSpace(spelled(t))
}

// next skips to the next element and reports whether there is one.
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

// key parses a key up to its colon.
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
