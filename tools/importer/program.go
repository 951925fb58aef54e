package importer

import "vapp.dev/foreign"

// program is a program of package foreign with the conversions of its flags.
type program struct {
	*foreign.Program
	to      map[string]converter // by the flag's first name
	from    string               // what its command lines are, for the comment of the profile
	missing string               // what to write where no model is named
	settle  func(d *draft)       // sets the fields that depend on several flags; nil: none
}

// flags returns the table with the conversions.
func (p *program) flags() []flag {
	var list []flag
	for _, f := range p.Flags {
		row := flag{names: f.Names, arity: f.Arity, why: f.Why}
		if to := p.to[row.name()]; to != nil {
			row.to, row.why = to, ""
		}
		list = append(list, row)
	}
	return list
}

func vllm() *program {
	return &program{Program: foreign.VLLM(), to: vllmConverters, from: "a command line of vLLM", missing: "write it behind vllm serve, or as --model MODEL; vLLM's default differs from release to release"}
}

func llamaServer() *program {
	return &program{Program: foreign.LlamaCPP(), to: llamaConverters, from: "a command line of llama-server", missing: "write -m FILE.gguf or -hf ORG/NAME", settle: settleLlama}
}

// llamaCLI is llamaServer without the address that a server has.
func llamaCLI() *program {
	p := llamaServer()
	own := *p.Program
	p.Program, p.from, p.settle = &own, "a command line of llama-cli", settleLlamaModel
	p.Command = "llama-cli"
	return p
}

func ollama() *program {
	return &program{Program: foreign.Ollama(), to: ollamaConverters, from: "a command line of Ollama", missing: "ollama serve names none: import the model's Modelfile (ollama show --modelfile NAME)", settle: settleOllama}
}

func sglang() *program {
	return &program{Program: foreign.SGLang(), to: sglangConverters, from: "a command line of SGLang", missing: "write --model-path MODEL", settle: settleSGLang}
}

func tgi() *program {
	return &program{Program: foreign.TGI(), to: tgiConverters, from: "a command line of text-generation-launcher", missing: "write --model-id MODEL", settle: settleTGI}
}

// otherServers is launches for the programs other than vLLM. first is the name of the first word.
func otherServers(first string, words []word) (*program, int, error) {
	second := ""
	if len(words) > 1 {
		second = words[1].text
	}
	switch {
	case first == "llama-server":
		return llamaServer(), 1, nil
	case first == "llama-cli":
		return llamaCLI(), 1, nil
	case first == "text-generation-launcher":
		return tgi(), 1, nil
	case first == "-m" && second == "sglang.launch_server", first == "sglang" && second == "serve":
		return sglang(), 2, nil
	case first == "ollama" && (second == "run" || second == "serve" || second == "start"):
		return ollama(), 2, nil
	case first == "ollama" && second != "":
		return nil, 0, failure(Refused, words[1].at, "give ollama run MODEL, ollama serve or a Modelfile", "ollama %s starts no model", short(second))
	}
	return nil, 0, nil
}
