package importer

import (
	"slices"
	"strings"

	"vapp.dev/nearest"
)

// modelfileWords are the instructions of a Modelfile besides FROM and LICENSE.
var modelfileWords = []string{"PARAMETER", "TEMPLATE", "SYSTEM", "ADAPTER", "MESSAGE", "LICENSE", "RENDERER", "PARSER", "REQUIRES"}

// isModelfile reports whether the text is a Modelfile of Ollama: it begins with FROM, and has an
// instruction of its own, or names a model file.
func isModelfile(text string) bool {
	from, own := "", false
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch upper := strings.ToUpper(name); {
		case name == "" || strings.HasPrefix(name, "#"):
		case from == "" && (upper == "FROM" || slices.Contains(modelfileWords, upper)):
			if upper == "FROM" {
				from = strings.TrimSpace(rest)
			} else {
				own = true
			}
		case from == "" && !own:
			return false
		case slices.Contains(modelfileWords, upper):
			own = true
		case slices.Contains([]string{"CMD", "ENTRYPOINT", "RUN", "COPY", "ENV", "ARG"}, name) && !own:
			return false
		}
	}
	return from != "" && (own || strings.HasSuffix(strings.ToLower(from), ".gguf") || strings.HasPrefix(from, "/") || strings.HasPrefix(from, "./"))
}

// commandOfModelfile reads a Modelfile. Its error is an *Error.
func commandOfModelfile(text string, at source) (*command, error) {
	c := &command{program: ollama()}
	c.program.from = "a Modelfile of Ollama"
	d := &draft{lex: newLexicon(c.program)}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines) && len(d.problems) < maxProblems; i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		place := at.place(i + 1)
		name, value, _ := strings.Cut(line, " ")
		given := strings.ToUpper(name)
		value = strings.TrimSpace(value)
		flagName := "--" + strings.ToLower(name)
		switch {
		case given == "PARAMETER":
			var key string
			key, value, _ = strings.Cut(value, " ")
			given, flagName = "PARAMETER "+key, "--"+strings.ReplaceAll(strings.ToLower(key), "_", "-")
			value = strings.TrimSpace(value)
		case given != "FROM" && !slices.Contains(modelfileWords, given):
			d.problem(Syntax, place, nearModelfile(given), "%q: no instruction of a Modelfile", short(name))
			continue
		}
		value, i = modelfileValue(lines, i, value)
		if i >= len(lines) {
			return nil, failure(Syntax, place, `close it with """`, `%s: a """ is open to the end of the text`, given)
		}
		f := d.lex.byName[flagName]
		switch {
		case f == nil || strings.HasPrefix(given, "PARAMETER ") && !parameter(flagName):
			d.problem(Unknown, place, nearParameter(d.lex, flagName), "%s: Ollama has no such parameter", short(given))
		case value == "":
			d.problem(Missing, place, "", "%s: a value must follow", short(given))
		default:
			c.file = append(c.file, setting{flag: f, given: given, on: true, at: place, values: []word{{text: value, at: place}}})
		}
	}
	if len(d.problems) > 0 {
		return nil, d.failed()
	}
	return c, nil
}

// modelfileValue returns the value of an instruction, without quotes, and the index of its last
// line; the number of lines where a """ is not closed.
func modelfileValue(lines []string, i int, value string) (string, int) {
	rest, open := strings.CutPrefix(value, `"""`)
	if !open {
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		return value, i
	}
	var b strings.Builder
	for {
		if text, _, closed := strings.Cut(rest, `"""`); closed {
			b.WriteString(text)
			return strings.TrimSpace(b.String()), i
		}
		b.WriteString(rest + "\n")
		if i++; i >= len(lines) {
			return "", i
		}
		rest = lines[i]
	}
}

// parameter reports whether the flag is a PARAMETER of a Modelfile and no instruction or flag of
// ollama run.
func parameter(name string) bool {
	return !slices.Contains([]string{"--model", "--from", "--template", "--system", "--message", "--adapter", "--license", "--renderer", "--parser", "--requires", "--keepalive", "--keep-alive", "--verbose", "--format", "--insecure", "--nowordwrap", "--think", "--hidethinking"}, name)
}

func nearModelfile(name string) string {
	if near := nearest.Best(name, append([]string{"FROM"}, modelfileWords...)); near != "" {
		return "did you mean " + near + "?"
	}
	return "a Modelfile has FROM, " + strings.Join(modelfileWords, ", ")
}

func nearParameter(l *lexicon, name string) string {
	var names []string
	for _, n := range l.names {
		if parameter(n) {
			names = append(names, strings.ReplaceAll(strings.TrimPrefix(n, "--"), "-", "_"))
		}
	}
	if near := nearest.Best(strings.TrimPrefix(name, "--"), names); near != "" {
		return "did you mean " + near + "?"
	}
	return "leave it out"
}
