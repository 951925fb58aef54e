package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"vapp.dev/foreign"
	"vapp.dev/internal/goldentest"
	"vapp.dev/schema"
)

// foreignWords are words of other programs: commands first, then flags, then fields of a profile.
var foreignWords = []struct{ program, commands, flags, fields string }{
	{"vLLM", "serve complete run-batch", "--tensor-parallel-size --gpu-memory-utilization --enable-prefix-caching --enforce-eager --swap-space --max-num-batched-tokens", "tensor_parallel_size gpu_memory_utilization kv_cache_dtype enable_chunked_prefill trust_remote_code max_loras"},
	{"llama.cpp", "llama-server llama-cli llama-bench", "--ctx-size --n-gpu-layers --flash-attn --mlock --jinja --cont-batching", "n_ctx ngl n_batch n_threads flash_attn use_mmap n_gpu_layers"},
	{"Ollama", "list ps show stop rm create", "--keepalive --num-ctx --num-thread", "num_ctx num_predict keep_alive num_thread num_gpu repeat_last_n OLLAMA_NUM_PARALLEL"},
	{"SGLang", "launch_server", "--mem-fraction-static --context-length --max-running-requests --disable-radix-cache --tp-size --schedule-policy", "mem_fraction_static context_length max_running_requests chunked_prefill_size attention_backend dp_size"},
	{"TGI", "text-generation-launcher", "--num-shard --max-input-tokens", "max_total_tokens cuda_memory_fraction"},
}

// TestForeignWords writes what the command line and the schema say to words of other programs.
func TestForeignWords(t *testing.T) {
	var b strings.Builder
	total := 0
	answer := func(args ...string) string {
		root := newRoot()
		root.SetArgs(args)
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		return fmt.Sprint(root.Execute())
	}
	for _, w := range foreignWords {
		n := 0
		line := func(text string) { n++; b.WriteString(text + "\n") }
		fmt.Fprintf(&b, "# %s\n", w.program)
		for _, word := range strings.Fields(w.commands) {
			line("vapp " + word + ": " + answer(word))
		}
		for _, word := range strings.Fields(w.flags) {
			line("vapp vet " + word + ": " + answer("vet", word, "x.cue"))
		}
		for _, word := range strings.Fields(w.fields) {
			_, err := schema.Parse("p.cue", []byte("import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"x\"\n\tmodel: source: \"org/model\"\n\t"+word+": 1\n}\n"))
			line(fmt.Sprint(err))
		}
		if n < 12 && w.program != "TGI" {
			t.Errorf("%s: %d words, want 12 or more", w.program, n)
		}
		total += n
	}
	if total < 60 {
		t.Errorf("%d words, want 60 or more", total)
	}
	goldentest.Compare(t, "testdata/foreign.txt", b.String())
}

// TestForeignTargets checks that every field and every command that a hint names exists.
func TestForeignTargets(t *testing.T) {
	words, targets := foreign.Commands()
	root := newRoot()
	for _, name := range targets {
		if c, _, err := root.Find([]string{name}); err != nil || c == root {
			t.Errorf("no command %q", name)
		}
	}
	for _, word := range words {
		command, remark, ok := foreign.Command(word)
		if !ok || command == "" && remark == "" {
			t.Errorf("%q: no answer", word)
		}
	}
	fields := map[string]bool{}
	for _, p := range foreign.Programs() {
		for _, f := range p.Flags {
			if (f.Field == "") == (f.Why == "") {
				t.Errorf("%s %s: either a field or a reason", p.Name, f.Names)
			}
			fields[f.Field] = true
		}
		for _, v := range p.Variables {
			if !strings.HasPrefix(v.Field, "--") {
				fields[v.Field] = true
			}
		}
	}
	delete(fields, "")
	for path := range fields {
		// A wrong value of a field that exists is no unknown field.
		parts := strings.Split(path, ".")
		_, err := schema.Parse("p.cue", []byte("import \"vapp.dev/schema\"\n\nschema.#Profile & {"+strings.Join(parts, ": ")+": _|_}\n"))
		var e *schema.Error
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		for _, p := range e.List {
			if p.Kind == schema.Unknown {
				t.Errorf("no field %s", path)
			}
		}
	}
}
