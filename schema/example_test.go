package schema_test

import (
	"fmt"

	"vapp.dev/schema"
)

// A profile in memory is parsed with the same checks as a file. Defaults are filled in.
func ExampleParse() {
	p, err := schema.Parse("mine.cue", []byte(`import "vapp.dev/schema"

schema.#Profile & {
	name: "mine"
	model: source: "meta-llama/Llama-3.2-1B"
	maxModelLen: "8K"
	memory: kvCache: "1GiB"
}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Model.Source, p.MaxModelLen, p.Memory.KVCache, p.Serve.Port)
	fmt.Println("kvCache is at", p.Pos("memory.kvCache"))
	// Output:
	// meta-llama/Llama-3.2-1B 8192 1GiB 8000
	// kvCache is at mine.cue:7:10
}

// All problems of a profile are reported, each with its position.
func ExampleError() {
	_, err := schema.Parse("mine.cue", []byte(`import "vapp.dev/schema"

schema.#Profile & {
	name: "mine"
	model: source: "meta-llama/Llama-3.2-1B"
	backned: "cpu"
	memory: reserve: "2 GB"
	serve: port: 99999
}
`))
	list := err.(*schema.Error).List
	for _, p := range list {
		fmt.Println(p.Pos, p.Kind, p.Path)
	}
	fmt.Println(list[2])
	// Output:
	// mine.cue:6:2 unknown backned
	// mine.cue:7:19 invalid memory.reserve
	// mine.cue:8:15 invalid serve.port
	// mine.cue:8:15: serve.port: invalid value 99999; allowed: an integer >= 0 and <= 65535
}

// Diff lists the changed fields, with what it takes to apply each to a running server.
func ExampleDiff() {
	const text = `import "vapp.dev/schema"

schema.#Profile & {
	name: "mine"
	model: source: "meta-llama/Llama-3.2-1B"
	scheduler: maxNumSeqs: %d
	sampling: temperature: %v
}
`
	old, err := schema.Parse("mine.cue", fmt.Appendf(nil, text, 8, 0.7))
	if err != nil {
		fmt.Println(err)
		return
	}
	next, err := schema.Parse("mine.cue", fmt.Appendf(nil, text, 16, 0.2))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(schema.Diff(old, next))
	// Output:
	// sampling.temperature: 0.7 → 0.2 (live)
	// scheduler.maxNumSeqs: 8 → 16 (structural)
}
