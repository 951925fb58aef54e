package schema

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"vapp.dev/filekind"
)

// noCUE ends the words about a file that is no profile.
const noCUE = "not a profile, which is a .cue file"

// otherKind returns an error if a file in place of a profile is of another kind: a model, an archive, a
// program, a manifest. data are its first bytes, at most one more than maxBytes. Text that could be
// CUE is left to the parser.
func otherKind(name string, data []byte) error {
	kind := filekind.Of(data[:min(len(data), filekind.HeadBytes)])
	base := strings.ToLower(filepath.Base(name))
	ext := filepath.Ext(base)
	isCUE := ext == ".cue"
	say := func(text string) error { return problem(Syntax, name, "%s", text) }
	switch kind {
	case filekind.GGUF:
		return say("is a GGUF model, not a profile: " + forModel(name, name))
	case filekind.Safetensors:
		return say("is safetensors weights, not a profile: " + forModel(filepath.Dir(name), filepath.Dir(name)))
	case filekind.JSON:
		switch {
		case strings.HasSuffix(base, ".lock.json"):
			return say("is a lock file, not a profile: name " + name[:len(name)-len(".lock.json")] + ".cue")
		case base == "config.json" || base == "tokenizer.json":
			return say("is a file of a model, not a profile: " + forModel(filepath.Dir(name), filepath.Dir(name)))
		case !isCUE:
			return say("is JSON, " + noCUE + ": write it as schema.#Profile & {…}; vapp init writes a first one")
		}
		return nil
	case filekind.Empty:
		return say("is empty; vapp init writes a first profile")
	case filekind.Text:
		return foreignText(name, base, ext, data)
	}
	if kind == filekind.Binary && bytes.IndexByte(data[:min(len(data), filekind.HeadBytes)], 0) < 0 {
		return nil // no UTF-8: the parser has the place
	}
	return say(kind.Begins() + ", neither a profile (a .cue file) nor a model (a GGUF file or a folder with safetensors)")
}

// holdsModel returns what to do with a folder that has a model and no profile; "" without a model.
func holdsModel(dir string, entries []os.DirEntry) string {
	for _, e := range entries {
		if name := strings.ToLower(e.Name()); name == "config.json" || strings.HasSuffix(name, ".gguf") {
			return "; it holds a model: " + forModel(dir, dir)
		}
	}
	return ""
}

// forModel says what to do with a model in place of a profile.
func forModel(plan, source string) string {
	return "vapp plan " + plan + " plans it; vapp init NAME --model " + source + " writes a profile"
}

// Patterns of the first line, apart from comments, of files that vapp import reads.
var (
	fromLine = regexp.MustCompile(`(?i)^from\s+\S`)
	manifest = regexp.MustCompile(`^(---\s*$|apiVersion:|kind:|services:|version: *["']?[0-9])`)
)

// foreignText returns an error for a text that is no CUE by its name and its first line.
func foreignText(name, base, ext string, data []byte) error {
	if ext == ".cue" {
		return nil
	}
	line := firstLine(data)
	switch {
	case base == "modelfile" || strings.HasSuffix(base, ".modelfile") || fromLine.MatchString(line) && base != "dockerfile" && ext != ".dockerfile":
		return problem(Syntax, name, "is a Modelfile of Ollama, %s; vapp import %s writes one", noCUE, name)
	case base == "dockerfile" || ext == ".dockerfile":
		return problem(Syntax, name, "is a Dockerfile, %s; vapp import %s writes one", noCUE, name)
	case manifest.MatchString(line):
		return problem(Syntax, name, "is a YAML manifest, %s; vapp import %s writes one, if it starts vLLM", noCUE, name)
	case ext == "":
		return problem(Syntax, name, "is text without .cue in its name; rename it to %s.cue if it is a profile; vapp init writes a first one", base)
	}
	return problem(Syntax, name, "is a file of type %s, %s; vapp init writes a first one", ext, noCUE)
}

// firstLine returns the first line that is neither empty nor a comment.
func firstLine(data []byte) string {
	for line := range strings.Lines(string(data[:min(len(data), filekind.HeadBytes)])) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "//") {
			return line
		}
	}
	return ""
}
