// Package foreign is the table of the names that vLLM, llama.cpp, Ollama, SGLang and TGI use for
// commands, flags, fields and environment variables, with what vapp has in their place: a field of
// a profile, a command, or the reason why there is none. Hints and the importer read the same
// table. It must not import anything of this tree but nearest, so that schema may use it. Start
// reading at Program and Hint.
package foreign

import (
	"strings"

	"vapp.dev/nearest"
)

// Arity is the number and form of a flag's values.
type Arity uint8

// The arities.
const (
	Boolean Arity = iota // --x, --no-x, --x=false, --x false
	One                  // one value
	Many                 // values up to the next flag
	Object               // JSON, or --x.key value
	Switch               // --x, --no-x, and --x followed by on, off, auto, true, false, 0, 1 or -1
)

// Flag is a flag of a program.
type Flag struct {
	Names string // the name, then aliases, separated by spaces
	Arity Arity
	Field string // of a profile; "" where Why says why there is none
	Why   string // begins with No
}

// Variable is an environment variable of a program. A name that ends in * stands for all names
// with that prefix. A Field that begins with "--" is the flag that the variable stands for.
type Variable struct{ Name, Field, Why string }

// Program is a program whose command lines are read.
type Program struct {
	Name      string // as people write it
	Command   string // that starts the server, for messages
	Flags     []Flag
	Variables []Variable
	Prefixes  bool // a unique prefix of a flag is enough (Python's argparse)
	Model     bool // the model is a positional argument
}

// No begins the reason of a flag without counterpart.
const No = "no counterpart: "

const no = No

// Programs returns all programs.
func Programs() []*Program { return []*Program{VLLM(), LlamaCPP(), Ollama(), SGLang(), TGI()} }

// VLLM returns the table of vllm serve.
func VLLM() *Program {
	p := &Program{Name: "vLLM", Command: "vllm serve", Variables: append(vllmVariables, hubVariables...), Prefixes: true, Model: true}
	for _, rows := range [][]Flag{vllmModelFlags, vllmParallelFlags, vllmMemoryFlags, vllmEngineFlags, vllmServeFlags} {
		p.Flags = append(p.Flags, rows...)
	}
	return p
}

// LlamaCPP returns the table of llama-server and llama-cli.
func LlamaCPP() *Program {
	return &Program{Name: "llama.cpp", Command: "llama-server", Flags: llamaFlags, Variables: append(llamaVariables(), hubVariables...)}
}

// Ollama returns the table of Modelfiles, whose parameters are flags with two dashes here, and of
// ollama's variables.
func Ollama() *Program {
	return &Program{Name: "Ollama", Command: "ollama", Flags: ollamaFlags, Variables: append(ollamaVariables, hubVariables...), Model: true}
}

// SGLang returns the table of sglang.launch_server.
func SGLang() *Program {
	return &Program{Name: "SGLang", Command: "sglang.launch_server", Flags: sglangFlags, Variables: append(sglangVariables, hubVariables...), Prefixes: true}
}

// TGI returns the table of text-generation-launcher. Each flag is also a variable in capitals.
func TGI() *Program {
	p := &Program{Name: "TGI", Command: "text-generation-launcher", Flags: tgiFlags}
	for _, f := range tgiFlags {
		name, _, _ := strings.Cut(f.Names, " ")
		p.Variables = append(p.Variables, Variable{Name: strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(name, "--"), "-", "_")), Field: name})
	}
	p.Variables = append(p.Variables, hubVariables...)
	return p
}

// Hint is what vapp has in place of a foreign word: a field, a command, or the text that says why
// there is none.
type Hint struct {
	Program string // whose word it is; "" for a word of several commands
	Word    string // as the program writes it
	Field   string
	Why     string // without No
}

// Says returns the hint as the end of a message: "for vLLM's
// --tensor-parallel-size, set parallel.tensor in the profile".
func (h Hint) Says() string {
	of := strings.TrimSpace(h.Program + "'s " + h.Word)
	if h.Field != "" {
		return "for " + of + ", set " + h.Field + " in the profile"
	}
	return of + ": " + h.Why
}

// Find returns the hint for a flag, a field or a variable as some program writes it. Dashes,
// underscores and case do not count. A word that names a field in one program and has no
// counterpart in another gives the field.
func Find(word string) (Hint, bool) {
	folded := nearest.Folded(word)
	if folded == "" || len(word) > 96 {
		return Hint{}, false
	}
	var best Hint
	for _, h := range fieldWords {
		if nearest.Folded(h.Word) == folded {
			return h, true
		}
	}
	for _, p := range Programs() {
		for _, f := range p.Flags {
			for _, n := range strings.Fields(f.Names) {
				short := len(strings.TrimLeft(n, "-")) < 2
				if nearest.Folded(n) != folded || short && n != word {
					continue
				}
				h := Hint{p.Name, n, f.Field, strings.TrimPrefix(f.Why, No)}
				if h.Field != "" {
					return h, true
				}
				if best.Word == "" {
					best = h
				}
			}
		}
		for _, v := range p.Variables {
			if v.Name == word && strings.Contains(word, "_") {
				if flag, ok := strings.CutPrefix(v.Field, "--"); ok {
					return Find(flag)
				}
				return Hint{p.Name, v.Name, v.Field, strings.TrimPrefix(v.Why, No)}, true
			}
		}
	}
	return best, best.Word != ""
}

// Command returns the command of vapp that does what a command of another program does, and a
// remark about it; "" where vapp has none and the remark says what to do.
func Command(word string) (command, remark string, ok bool) {
	for _, c := range commands {
		for _, n := range strings.Fields(c.words) {
			if n == strings.ToLower(word) {
				return c.command, c.remark, true
			}
		}
	}
	return "", "", false
}

// Commands returns every command that a row names, for tests.
func Commands() (words, targets []string) {
	for _, c := range commands {
		words = append(words, strings.Fields(c.words)...)
		if c.command != "" {
			targets = append(targets, c.command)
		}
	}
	return words, targets
}

// Grammar is a reason that conversions of values also give.
const Grammar = grammar
