package structured

import (
	"slices"
	"strings"
)

// sequence writes elements in a row. It works from the last to the first, because free
// text ends with the prefix of the element after it. The second result is that of expr.
func (w *tagWriter) sequence(list []*tagFormat, p place) (string, bool) {
	if len(list) == 0 {
		return w.fail(`a "sequence" needs elements`)
	}
	list = slices.Clone(list)
	out := make([]string, len(list))
	var wroteNext, took bool
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == nil {
			return w.fail("a part of the structural tag is missing")
		}
		out[i], took = w.expr(list[i], w.after(list, i, p))
		switch {
		case took && i+1 == len(list):
			wroteNext = true
		case took:
			out[i+1], _ = w.expr(list[i+1].withoutPrefix(), w.after(list, i+1, p))
		}
	}
	return "(" + strings.Join(out, " ") + ")", wroteNext
}

// after returns the place of element i, which describes what follows it.
func (w *tagWriter) after(list []*tagFormat, i int, p place) place {
	if i+1 == len(list) {
		return p
	}
	next := list[i+1]
	return place{next: []string{next.prefix()}, open: w.beginsWithToken(next) && (next.prefix() != "" || p.last && i+2 == len(list))}
}

// either writes alternatives. Free text may be one of them only at the end of the whole
// tag, because it would have to write the text that follows, which other alternatives
// leave to the next element.
func (w *tagWriter) either(list []*tagFormat, p place) (string, bool) {
	if len(list) == 0 {
		return w.fail(`an "or" needs elements`)
	}
	var out []string
	for _, f := range list {
		way, _ := w.expr(f, place{last: p.last})
		out = append(out, way)
	}
	return "(" + strings.Join(out, " | ") + ")", false
}

// tag writes begin, content and end.
func (w *tagWriter) tag(f *tagFormat, p place) (string, bool) {
	ends, err := f.ends()
	if err != nil {
		return w.fail("%w", err)
	}
	out, here := w.literal(f.Begin), place{next: ends}
	bare := slices.Contains(ends, "")
	if bare {
		here = p
	}
	body, took := w.expr(f.Content, here)
	if out == `""` {
		out = body
	} else {
		out += " " + body
	}
	if bare || took {
		return "(" + out + ")", took && bare
	}
	return "(" + out + " (" + w.texts(ends) + "))", false
}

// texts writes alternative strings.
func (w *tagWriter) texts(list []string) string {
	var ways []string
	for _, s := range list {
		ways = append(ways, w.literal(s))
	}
	return strings.Join(ways, " | ")
}

// triggered writes free text that contains tags, each of which begins with a trigger.
func (w *tagWriter) triggered(f *tagFormat, p place) (string, bool) {
	if len(f.Tags) == 0 || len(f.Triggers) == 0 {
		return w.fail(`"triggered_tags" need at least one of "tags" and of "triggers"`)
	}
	if len(f.Triggers) > maxTags {
		return w.fail("a structural tag has at most %d parts", maxTags)
	}
	ways := make([][]string, len(f.Triggers)) // per trigger: the tags without the trigger
	for _, t := range f.Tags {
		if t == nil || t.Begin == "" {
			return w.fail(`each of "tags" needs a "begin"`)
		}
		k := f.trigger(t.Begin)
		if k < 0 {
			return w.fail("no trigger begins the structure %q", t.Begin)
		}
		rest := *t
		rest.Type, rest.Begin = "tag", strings.TrimPrefix(t.Begin, f.Triggers[k])
		way, took := w.expr(&rest, place{next: f.Triggers})
		if took {
			return w.fail("the tag %q needs an end", t.Begin)
		}
		ways[k] = append(ways[k], way)
	}
	var triggers, rest []string
	for k, list := range ways {
		if len(list) > 0 {
			triggers, rest = append(triggers, f.Triggers[k]), append(rest, strings.Join(list, " | "))
		}
	}
	once := w.rule("r", w.upTo(f.Excludes, triggers, rest))
	if f.AtLeast && f.First {
		return once, false
	}
	tail, took := w.free(slices.Concat(f.Triggers, f.Excludes), p)
	switch {
	case f.First && took:
		return "(" + once + " (" + w.texts(p.next) + ") | " + tail + ")", true
	case f.First:
		return "(" + once + " | " + tail + ")", false
	case f.AtLeast:
		return "(" + once + "+ " + tail + ")", took
	}
	return "(" + once + "* " + tail + ")", took
}

// trigger returns the index of the shortest trigger that s begins with, which is the
// first one that a reader of s would meet; −1 if there is none.
func (f *tagFormat) trigger(s string) int {
	k := -1
	for i, t := range f.Triggers {
		if t != "" && strings.HasPrefix(s, t) && (k < 0 || len(t) < len(f.Triggers[k])) {
			k = i
		}
	}
	return k
}

// separated writes tags with a separator between them.
func (w *tagWriter) separated(f *tagFormat, _ place) (string, bool) {
	if len(f.Tags) == 0 {
		return w.fail(`"tags_with_separator" need "tags"`)
	}
	var ways []string
	for _, t := range f.Tags {
		way, took := w.expr(t, place{})
		if took {
			return w.fail("a tag needs an end")
		}
		ways = append(ways, way)
	}
	one := w.rule("r", strings.Join(ways, " | "))
	out := one
	if !f.First {
		out = "(" + one + " (" + w.literal(f.Separator) + " " + one + ")*)"
	}
	if !f.AtLeast {
		out = "(" + out + ")?"
	}
	return out, false
}
