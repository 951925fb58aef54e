package importer

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/literal"

	"vapp.dev/nearest"
	"vapp.dev/schema"
)

// quote returns s as a CUE string.
func quote(s string) string { return literal.String.Quote(s) }

// quotes returns list as a CUE list of strings.
func quotes(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// text returns a converter that copies a text to the field at path.
func text(path string) converter {
	return func(d *draft, s setting) { d.set(path, quote(s.value()), s) }
}

// yes returns a converter that copies a boolean.
func yes(path string) converter {
	return func(d *draft, s setting) { d.set(path, strconv.FormatBool(s.on), s) }
}

// not returns a converter that copies a negated boolean.
func not(path string) converter {
	return func(d *draft, s setting) { d.set(path, strconv.FormatBool(!s.on), s) }
}

// integer returns a converter that copies a whole number; K, M, G are powers of 1024, k, m, g
// powers of 1000.
func integer(path string) converter {
	return func(d *draft, s setting) {
		if n, ok := wholeNumber(s.value()); ok {
			d.set(path, n, s)
		} else {
			d.invalid(s, `a whole number, such as 8192 or "8K"`)
		}
	}
}

// wholeNumber parses -1, 8192, 8K or 25.6k.
func wholeNumber(text string) (string, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return strconv.FormatInt(n, 10), true
	}
	n, err := schema.ParseCount(text)
	return n.String(), err == nil && n != schema.Auto
}

// number returns a converter that copies a fraction.
func number(path string) converter {
	return func(d *draft, s setting) {
		if n, ok := decimal(s.value()); ok {
			d.set(path, n, s)
		} else {
			d.invalid(s, "a number")
		}
	}
}

// decimal formats a number for CUE, without exponent; false where it is no number or is out of a
// sensible range.
func decimal(text string) (string, bool) {
	if len(text) > 32 || strings.ContainsAny(text, "/_xXpPiInN") {
		return "", false
	}
	if _, e, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		if n, err := strconv.Atoi(e); err != nil || n < -18 || n > 18 {
			return "", false
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return "", false
	}
	if r.IsInt() {
		return r.Num().String(), true
	}
	return strings.TrimRight(r.FloatString(20), "0"), true
}

// tokens returns a converter that copies a length: "256K" stays "256K", -1 and auto become auto.
func tokens(path string) converter {
	return func(d *draft, s setting) {
		v := s.value()
		switch n, err := schema.ParseCount(v); {
		case v == "-1" || strings.EqualFold(v, "auto"):
			d.set(path, `"auto"`, s)
		case err != nil:
			d.invalid(s, `a number of tokens, such as 8192 or "8K", or auto`)
		case strings.Trim(v, "0123456789") == "":
			d.set(path, n.String(), s)
		default:
			d.set(path, quote(v), s)
		}
	}
}

// bytesOf returns a converter that copies a size. A plain number is in units of unit; K, M, G, T
// are powers of 1024, and k, m, g, t powers of 1000 where unit is 1.
func bytesOf(path string, unit int64) converter {
	return func(d *draft, s setting) {
		if n, ok := sizeOf(s.value(), unit); ok {
			d.set(path, size(n), s)
		} else {
			d.invalid(s, map[bool]string{true: `a number of bytes, such as 1073741824 or 20G`, false: "a number of GiB"}[unit == 1])
		}
	}
}

// sizeOf parses a number of bytes.
func sizeOf(text string, unit int64) (int64, bool) {
	if unit == 1 {
		n, err := schema.ParseBytes(text)
		return int64(n), err == nil && strings.Trim(text, "0123456789.kKmMgGtT") == ""
	}
	plain, ok := decimal(text)
	if !ok {
		return 0, false
	}
	r, _ := new(big.Rat).SetString(plain)
	r.Mul(r, new(big.Rat).SetInt64(unit))
	n := new(big.Int).Quo(r.Num(), r.Denom())
	return n.Int64(), n.IsInt64() && n.Sign() >= 0
}

// size formats bytes in the largest unit that divides them.
func size(n int64) string {
	if n == 0 || n%(1<<20) != 0 {
		return strconv.FormatInt(n, 10)
	}
	return quote(schema.Bytes(n).String())
}

// seconds returns a converter that copies a duration.
func seconds(path string) converter {
	return func(d *draft, s setting) {
		n, err := strconv.ParseUint(s.value(), 10, 31)
		if err != nil {
			d.invalid(s, "a number of seconds")
			return
		}
		d.set(path, quote(fmt.Sprintf("%ds", n)), s)
	}
}

// words returns a converter that copies a list.
func words(path string) converter {
	return func(d *draft, s setting) {
		var list []string
		for _, v := range s.values {
			list = append(list, v.text)
		}
		d.set(path, quotes(list), s)
	}
}

// jsonWords returns a converter that copies a JSON list of texts, or words.
func jsonWords(path string) converter {
	return func(d *draft, s setting) {
		var list []string
		if strings.HasPrefix(strings.TrimSpace(s.value()), "[") {
			if json.Unmarshal([]byte(s.value()), &list) != nil {
				d.invalid(s, `a JSON list of texts, such as ["*"]`)
				return
			}
		} else {
			for _, v := range s.values {
				list = append(list, v.text)
			}
		}
		d.set(path, quotes(list), s)
	}
}

// choice returns a converter that maps a word of vLLM to vapp's. A word that maps to "" is vapp's
// default. A word that maps to a text with a space becomes a note with that text.
func choice(path string, of map[string]string) converter {
	return func(d *draft, s setting) {
		to, ok := of[s.value()]
		if !ok {
			to, ok = of[strings.ToLower(s.value())]
		}
		switch {
		case !ok:
			d.unknownWord(s, of)
		case to == "":
		case strings.Contains(to, " "):
			d.notef(s, "%s", to)
		default:
			d.set(path, quote(to), s)
		}
	}
}

// unknownWord reports a word that the flag does not accept.
func (d *draft) unknownWord(s setting, of map[string]string) {
	var all []string
	for k := range of {
		all = append(all, k)
	}
	slices.Sort(all)
	allowed := "allowed: " + strings.Join(all, ", ")
	if near := nearest.Best(s.value(), all); near != "" && len(all) > 8 {
		allowed = "did you mean " + near + "?"
	} else if near != "" {
		allowed += "; did you mean " + near + "?"
	}
	d.problem(Invalid, s.at, allowed, "%s: invalid value %q", s.given, d.maskedValue(s))
}
