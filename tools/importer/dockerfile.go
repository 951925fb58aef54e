package importer

import (
	"encoding/json"
	"slices"
	"strings"
)

// form is the format of a text.
type form int

const (
	formNone form = iota
	formShell
	formDockerfile
	formYAML
	formModelfile
)

// instructions are the instructions of a Dockerfile.
var instructions = []string{
	"FROM", "ARG", "ENV", "CMD", "ENTRYPOINT", "RUN", "COPY", "ADD", "WORKDIR", "LABEL", "SHELL", "USER", "EXPOSE", "VOLUME", "HEALTHCHECK",
	"STOPSIGNAL", "ONBUILD", "MAINTAINER",
}

// formOf returns the format of a text, by its first line that is not blank or a comment.
func formOf(text string) form {
	if isModelfile(text) {
		return formModelfile
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		first, _, more := strings.Cut(line, " ")
		key, value, colon := strings.Cut(line, ":")
		switch {
		case more && slices.Contains(instructions, first):
			return formDockerfile
		case strings.ContainsAny(line[:1], "[{") || line == "-" || first == "-" || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "%YAML"):
			return formYAML
		case colon && key != "" && !strings.ContainsAny(key, " /=") && (value == "" || strings.HasPrefix(value, " ")):
			return formYAML
		}
		return formShell
	}
	return formNone
}

// dockerfile is the state of the current build stage.
type dockerfile struct {
	at         source
	image      string
	vars       variables
	entry, cmd *instruction
}

// instruction is an instruction of a Dockerfile, with continued lines joined.
type instruction struct {
	name, text string
	line       int // of its first line
}

// commandOfDockerfile returns the command of the last stage. Its error is an *Error.
func commandOfDockerfile(text string, at source) (*command, error) {
	d := dockerfile{at: at}
	for _, in := range instructionsOf(text) {
		switch in.name {
		case "FROM":
			image, _, _ := strings.Cut(strings.TrimSpace(in.text), " ")
			d = dockerfile{at: at, image: image, vars: d.vars}
		case "ENV", "ARG":
			if err := d.assign(in); err != nil {
				return nil, err
			}
		case "ENTRYPOINT":
			d.entry, d.cmd = &in, nil // ENTRYPOINT resets CMD, as in docker
		case "CMD":
			d.cmd = &in
		}
	}
	c, err := d.command()
	if err == nil && c == nil {
		return nil, notFound(Place{Name: at.name}, "neither CMD nor ENTRYPOINT of the last stage starts a server")
	}
	return c, err
}

// command combines ENTRYPOINT and CMD; the shell form of ENTRYPOINT ignores CMD.
func (d *dockerfile) command() (*command, error) {
	var words []word
	for _, in := range []*instruction{d.entry, d.cmd} {
		if in == nil {
			continue
		}
		list, exec, err := d.exec(*in)
		if err != nil {
			return nil, err
		}
		if !exec && len(words) > 0 {
			return nil, failure(Refused, d.at.place(in.line), `write it as CMD ["a", "b"]`, "docker gives this CMD to the ENTRYPOINT as sh -c TEXT, which vLLM does not take")
		}
		if !exec {
			return scriptCommand(in.text, source{name: d.at.name, line: d.at.line + in.line - 1}, d.vars)
		}
		words = append(words, list...)
	}
	c, err := commandOfImage(d.image, words, 0)
	if c != nil {
		c.vars = append(d.vars, c.vars...)
	}
	return c, err
}

// exec parses a JSON array; false where the text is the shell form.
func (d *dockerfile) exec(in instruction) ([]word, bool, error) {
	text := strings.TrimSpace(strings.ReplaceAll(in.text, "\\\n", " "))
	if !strings.HasPrefix(text, "[") {
		return nil, false, nil
	}
	place := d.at.place(in.line)
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false, failure(Syntax, place, `write it as ["a", "b"] with double quotes`, "%s: not a JSON array of strings: %s", in.name, oneLine(err.Error()))
	}
	if len(list) > maxWords {
		return nil, false, failure(TooLarge, place, "", "%s has more than %d words", in.name, maxWords)
	}
	words := make([]word, len(list))
	for i, s := range list {
		words[i] = d.vars.unexpanded(word{text: s, at: place})
	}
	return words, true, nil
}

// assign handles ENV A=b C=d, ENV A b, ARG A=b and ARG A.
func (d *dockerfile) assign(in instruction) error {
	raw, err := parseScript(in.text, source{name: d.at.name, line: d.at.line + in.line - 1})
	if err != nil || len(raw) == 0 {
		return err
	}
	words, err := d.vars.words(raw[0], source{name: d.at.name, line: d.at.line + in.line - 1}, nil)
	if err != nil {
		return err
	}
	if len(words) == 2 && in.name == "ENV" && !strings.Contains(words[0].text, "=") {
		d.vars = append(d.vars, variable{words[0].text, words[1]})
	} else {
		d.vars = append(d.vars, assignments(words)...)
	}
	return d.vars.within(d.at.place(in.line))
}

// instructionsOf joins continued lines, and removes comments and the bodies of here-documents.
// Joined lines keep their line breaks, so that words keep their line numbers.
func instructionsOf(text string) []instruction {
	var out []instruction
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		name, rest, _ := strings.Cut(strings.TrimSpace(lines[i]), " ")
		if name = strings.ToUpper(name); !slices.Contains(instructions, name) {
			continue
		}
		in := instruction{name: name, line: i + 1}
		joined := []string{strings.TrimRight(rest, " \t")}
		for continues(lines[i]) && i+1 < len(lines) {
			i++
			if next := strings.TrimSpace(lines[i]); next == "" || strings.HasPrefix(next, "#") {
				lines[i] = `\` // comments and blank lines between continued lines do not end an instruction
			}
			joined = append(joined, strings.TrimRight(lines[i], " \t"))
		}
		in.text = strings.Join(joined, "\n")
		if _, mark, ok := strings.Cut(rest, "<<"); ok && name != "CMD" && name != "ENTRYPOINT" {
			mark = strings.Trim(strings.TrimPrefix(mark, "-"), `"'`)
			mark, _, _ = strings.Cut(mark, " ")
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != strings.Trim(mark, `"'`); i++ {
			}
		}
		out = append(out, in)
	}
	return out
}

// continues reports whether the next line belongs to this one.
func continues(line string) bool { return strings.HasSuffix(strings.TrimRight(line, " \t"), `\`) }
