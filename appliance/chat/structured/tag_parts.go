package chat

import (
	"slices"
	"strings"
)

// sequence writes elements one after the other, from the last to the first, since what
// follows ends free text.
func (w *tagWriter) sequence(list []*tagFormat, p place) (string, bool) {
	if len(list) == 0 {
		return w.fail(`a "sequence" needs elements`)
	}
	list = slices.Clone(list)
	out := make([]string, len(list))
	var swallowed, took bool
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == nil {
			return w.fail("a part of the structural tag is missing")
		}
		out[i], took = w.expr(list[i], w.behind(list, i, p))
		switch {
		case took && i+1 == len(list):
			swallowed = true
		case took:
			out[i+1], _ = w.expr(list[i+1].withoutLead(), w.behind(list, i+1, p))
		}
	}
	return "(" + strings.Join(out, " ") + ")", swallowed
}

// behind is the place of element i.
func (w *tagWriter) behind(list []*tagFormat, i int, p place) place {
	if i+1 == len(list) {
		return p
	}
	next := list[i+1]
	return place{next: []string{next.lead()}, open: w.tokenLed(next) && (next.lead() != "" || p.last && i+2 == len(list))}
}

// either writes alternatives. Free text may be one of them only at the end, since the
// others leave the text behind to others.
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

// texts are alternatives.
func (w *tagWriter) texts(list []string) string {
	var ways []string
	for _, s := range list {
		ways = append(ways, w.literal(s))
	}
	return strings.Join(ways, " | ")
}

// triggered writes free text in which tags come: each begins with a trigger.
func (w *tagWriter) triggered(f *tagFormat, p place) (string, bool) {
	if len(f.Tags) == 0 || len(f.Triggers) == 0 {
		return w.fail(`"triggered_tags" need at least one of "tags" and of "triggers"`)
	}
	if len(f.Triggers) > maxTags {
		return w.fail("a structural tag has at most %d parts", maxTags)
	}
	ways := make([][]string, len(f.Triggers)) // of each trigger, what follows it
	for _, t := range f.Tags {
		if t == nil || t.Begin == "" {
			return w.fail(`each of "tags" has a "begin"`)
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

// trigger is the first to come of those that begin s, −1: none does.
func (f *tagFormat) trigger(s string) int {
	k := -1
	for i, t := range f.Triggers {
		if t != "" && strings.HasPrefix(s, t) && (k < 0 || len(t) < len(f.Triggers[k])) {
			k = i
		}
	}
	return k
}

// separated writes tags with a text between them.
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
