package importer

import (
	"path"
	"slices"
	"strings"
)

// command is a command that starts vLLM.
type command struct {
	program *program  // nil: vLLM
	words   []word    // arguments of its server: the model and the flags
	vars    variables // of its process
	front   []word    // programs that run it, such as numactl; not part of a profile
	notes   []note    // about the container around it
	mounts  []mount   // of the container
	file    []setting // from a config file; before the words
}

// commandOfScript finds the only command of a script that starts vLLM. Its error is an *Error.
func commandOfScript(text string, at source) (*command, error) {
	c, err := scriptCommand(text, at, nil)
	if err == nil && c == nil {
		return nil, notFound(Place{Name: at.name}, "no command here starts a server of vLLM, llama.cpp, Ollama, SGLang or TGI")
	}
	return c, err
}

// scriptCommand is commandOfScript with variables from around the script. It returns nil where
// nothing in the script starts vLLM.
func scriptCommand(text string, at source, vars variables) (*command, error) {
	all, err := parseScript(text, at)
	if err != nil {
		return nil, err
	}
	var found *command
	for _, raw := range all {
		var count *int
		if at.single {
			count = new(int)
		}
		words, err := vars.words(raw, at, count)
		if err != nil {
			return nil, err
		}
		if len(words) == 0 {
			continue
		}
		if own, alone := onlyAssignments(words); alone {
			vars = append(vars, own...)
			if err := vars.within(words[0].at); err != nil {
				return nil, err
			}
			continue
		}
		if found != nil && strings.HasPrefix(words[0].text, "-") {
			return nil, failure(Syntax, words[0].at, "is a backslash missing at the end of the line before?", "%s begins a line of its own", words[0].text)
		}
		c, err := commandOfWords(words, at.depth)
		if err != nil {
			return nil, err
		}
		if c == nil {
			continue
		}
		if found != nil {
			return nil, failure(NotFound, words[0].at, "import one at a time", "a second command that starts a server")
		}
		c.vars = append(slices.Clone(vars), c.vars...)
		found = c
	}
	return found, nil
}

// onlyAssignments returns the assignments of a command that consists of assignments.
func onlyAssignments(words []word) (variables, bool) {
	if slices.Contains([]string{"export", "set", "declare"}, words[0].text) {
		words = words[1:]
	}
	if len(words) > 0 && words[0].text == "-x" {
		words = words[1:]
	}
	own := assignments(words)
	return own, len(own) == len(words)
}

// commandOfWords finds vLLM in the words of one command. It returns nil for any other command. Its
// error is an *Error.
func commandOfWords(words []word, depth int) (*command, error) {
	for len(words) > 0 && slices.Contains([]string{"$", "%", ">", "#"}, words[0].text) { // a shell prompt copied with the command
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, nil
	}
	if strings.HasPrefix(words[0].text, "-") {
		return &command{words: words}, nil
	}
	if i := indexOfDocker(words); i >= 0 {
		return dockerCommand(words, i, depth)
	}
	for i := range words {
		if script := shellScript(words[i:]); script != nil {
			return insideShell(words[:i], *script, depth)
		}
		p, n, err := launches(words[i:])
		if err != nil {
			return nil, err
		}
		if n > 0 {
			c := &command{program: p, words: words[i+n:]}
			c.before(words[:i])
			return c, nil
		}
	}
	return nil, nil
}

// launches returns the program whose server the leading words start, and their number; 0: none.
func launches(words []word) (*program, int, error) {
	second := ""
	if len(words) > 1 {
		second = words[1].text
	}
	first := words[0].text
	switch {
	case strings.TrimSuffix(path.Base(first), ".exe") == "vllm":
		switch second {
		case "serve":
			return vllm(), 2, nil
		case "bench", "chat", "complete", "run-batch", "collect-env":
			return nil, 0, failure(Refused, words[1].at, "give the command line of vllm serve", "vllm %s starts no server", second)
		}
	case first == "-m" && slices.Contains([]string{"vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"}, second):
		return vllm(), 2, nil
	case first == "-m" && (second == "vllm" || second == "vllm.entrypoints.cli.main"):
		if len(words) > 2 && words[2].text == "serve" {
			return vllm(), 3, nil
		}
	case path.Base(first) == "api_server.py":
		return vllm(), 1, nil
	}
	return otherServers(strings.TrimSuffix(path.Base(first), ".exe"), words)
}

// shellScript returns the script of a shell with -c, or nil.
func shellScript(words []word) *word {
	if !slices.Contains([]string{"sh", "bash", "dash", "ash", "zsh"}, path.Base(words[0].text)) {
		return nil
	}
	for i, w := range words[1:] {
		switch {
		case !strings.HasPrefix(w.text, "-") || strings.HasPrefix(w.text, "--"):
			return nil
		case strings.HasSuffix(w.text, "c") && i+2 < len(words):
			return &words[i+2]
		}
	}
	return nil
}

// insideShell imports the script of sh -c.
func insideShell(before []word, script word, depth int) (*command, error) {
	if depth >= maxDepth {
		return nil, failure(TooLarge, script.at, "give the innermost command", "more than %d shells inside each other", maxDepth)
	}
	at := source{name: script.at.Name, line: script.at.Line - 1, depth: depth + 1, fixed: true}
	if script.at.Line == 0 {
		at.single = true
	}
	outer := &command{}
	outer.before(before)
	c, err := scriptCommand(script.text, at, outer.vars)
	if c != nil {
		c.front = append(outer.front, c.front...)
	}
	return c, err
}

// silent are commands in front of vLLM that do not affect the profile.
var silent = []string{
	"sudo", "exec", "nohup", "env", "time", "command", "python", "python3", "if", "then", "else", "do", "while", "until", "!", "{", "-u", "-E",
	"tini", "--", "-g", "dumb-init",
}

// pythons are tools that select the Python to run; their arguments do not affect the profile.
var pythons = []string{"uv", "uvx", "poetry", "conda", "mamba", "pdm", "hatch", "rye", "pixi", "pipx"}

// before handles the words in front of vLLM: variables, and programs that run the command.
func (c *command) before(words []word) {
	for _, w := range words {
		if v, ok := assignment(w); ok {
			c.vars = append(c.vars, v)
		} else if name := path.Base(w.text); slices.Contains(pythons, name) {
			return
		} else if !slices.Contains(silent, name) && !strings.HasPrefix(name, "python3.") {
			c.front = append(c.front, w)
		}
	}
}
