package console

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"vapp.dev/nearest"
)

// setting is a parameter that /set changes.
type setting struct {
	name     string
	kind     byte // 'f' number, 'i' whole number, 's' text, 'l' texts, 'b' on or off
	min, max float64
}

// settings are the parameters of /set: fields of the API, and system and reasoning.
var settings = []setting{
	{"system", 's', 0, 0}, {"temperature", 'f', 0, 2}, {"top_p", 'f', 0, 1}, {"top_k", 'i', -1, 1 << 20}, {"min_p", 'f', 0, 1},
	{"repetition_penalty", 'f', 0, 10}, {"presence_penalty", 'f', -2, 2}, {"frequency_penalty", 'f', -2, 2},
	{"max_tokens", 'i', 1, 1 << 30}, {"min_tokens", 'i', 0, 1 << 30}, {"seed", 'i', -1 << 53, 1 << 53}, {"stop", 'l', 0, 0},
	{"ignore_eos", 'b', 0, 0}, {"reasoning", 'b', 0, 0},
}

// settingOf returns the setting of a name, or an error with the nearest name.
func settingOf(name string) (setting, error) {
	var names []string
	for _, s := range settings {
		if s.name == strings.ReplaceAll(name, "-", "_") {
			return s, nil
		}
		names = append(names, s.name)
	}
	hint := ""
	if near := nearest.Best(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return setting{}, fmt.Errorf("there is no setting %s%s; /set lists them", Printable(name), hint)
}

// parse returns the value of a text.
func (s setting) parse(text string) (any, error) {
	switch s.kind {
	case 's':
		return text, nil
	case 'l':
		return texts(text)
	case 'b':
		switch text {
		case "on", "true":
			return true, nil
		case "off", "false":
			return false, nil
		}
		return nil, fmt.Errorf("%s is on or off, not %s", s.name, Printable(text))
	case 'i':
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || float64(n) < s.min || float64(n) > s.max {
			return nil, fmt.Errorf("%s is a whole number from %.0f to %.0f, not %s", s.name, s.min, s.max, Printable(text))
		}
		return n, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= s.min && x <= s.max) {
		return nil, fmt.Errorf("%s is a number from %g to %g, not %s", s.name, s.min, s.max, Printable(text))
	}
	return x, nil
}

// texts returns the JSON strings of a line ("a" "b"), or the line as one text.
func texts(line string) ([]string, error) {
	if !strings.HasPrefix(line, `"`) {
		return []string{line}, nil
	}
	var out []string
	for d := json.NewDecoder(strings.NewReader(line)); d.More(); {
		var s string
		if err := d.Decode(&s); err != nil {
			return nil, fmt.Errorf(`%s: write texts in quotes, with spaces between: "a" "\n\n"`, Printable(line))
		}
		out = append(out, s)
	}
	return out, nil
}

// show formats a value as /set accepts it.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "(server's default)"
	case bool:
		if v {
			return "on"
		}
		return "off"
	case []string:
		var out []string
		for _, s := range v {
			out = append(out, strconv.Quote(s))
		}
		return strings.Join(out, " ")
	}
	return Printable(fmt.Sprint(v))
}
