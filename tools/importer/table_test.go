package importer

import (
	"strings"
	"testing"

	"vapp.dev/schema"
)

// tables returns all tables of flags.
func tables() [][]flag {
	return [][]flag{vllm().flags()}
}

// TestTable checks that each flag has either a conversion or a reason, and that names are unique.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, rows := range tables() {
		for _, f := range rows {
			if (f.to == nil) == (f.why == "") {
				t.Errorf("%s: either it becomes something, or it says why not", f.names)
			}
			if f.why != "" && !strings.HasPrefix(f.why, no) {
				t.Errorf("%s: the reason %q does not begin with %q", f.names, f.why, no)
			}
			for i, n := range strings.Fields(f.names) {
				if seen[n] {
					t.Errorf("%s: a second time", n)
				}
				seen[n] = true
				if i == 0 && !strings.HasPrefix(n, "--") || n != strings.ToLower(n) && n != "-O" || strings.Contains(n, "_") {
					t.Errorf("%s: no name as vLLM writes them", n)
				}
			}
		}
	}
	if len(seen) < 380 {
		t.Errorf("%d names, want vLLM's 380 and more", len(seen))
	}
}

// TestReferenceFlags checks that the table has every flag of vllm serve's reference pages.
func TestReferenceFlags(t *testing.T) {
	const names = `--api-key --attention-backend --block-size --chat-template --chat-template-content-format --config --cudagraph-capture-sizes
		--disable-access-log-for-endpoints --download-dir --dtype --enable-auto-tool-choice --enable-chunked-prefill --enable-log-requests
		--enable-prefix-caching --enable-prompt-tokens-details --enable-request-id-headers --enforce-eager --exclude-tools-when-tool-choice-none
		--fail-on-environ-validation --generation-config --gpu-memory-utilization --host --kv-cache-dtype --kv-cache-memory --kv-cache-memory-bytes
		--kv-events-config --kv-offloading-size --language-model-only --limit-mm-per-prompt --load-format --long-prefill-token-threshold
		--max-cudagraph-capture-size --max-model-len --max-num-batched-tokens --max-num-seqs --model --otlp-traces-endpoint
		--override-generation-config --pipeline-parallel-size --port --prefix-caching-hash-algo --quantization --reasoning-parser --revision
		--scheduling-policy --seed --served-model-name --shutdown-timeout --speculative-config --speculative-config.method
		--speculative-config.num_speculative_tokens --speculative-config.rejection_sample_method --ssl-certfile --ssl-keyfile
		--tensor-parallel-size --tokenizer --tool-call-parser --trust-remote-code --trust-request-chat-template --uds --watermark
		--device-memory-utilization --max-num-active-seqs --watermark-config --logging-config --aux-output-config --engram-config
		--kda-decode-backend --sleep-mode-backend --custom-histogram-buckets --tool-strict-level --reasoning-effort-map
		--allowed-local-media-path --allowed-media-domains --disable-chunked-mm-input --enable-mm-embeds --enable-tower-connector-lora --interleave-mm-strings
		--limit-mm-per-prompt.image --media-io-kwargs --mm-device-do-normalize --mm-encoder-attn-backend --mm-encoder-attn-dtype
		--mm-encoder-fp8-scale-path --mm-encoder-fp8-scale-save-margin --mm-encoder-fp8-scale-save-path --mm-encoder-only --mm-encoder-tp-mode
		--mm-hasher-algorithm --mm-ipc-gpu-memory-gb --mm-processor-cache-gb --mm-processor-cache-type --mm-processor-device --mm-processor-kwargs.max_soft_tokens
		--mm-shm-cache-max-object-size-mb --mm-tensor-ipc --skip-mm-profiling --trust-request-mm-kwargs --video-pruning-method --video-pruning-rate
		-O3 -cc.mode -cc.cudagraph_mode -tp -pp -q`
	lex := newLexicon(vllm())
	for _, n := range strings.Fields(names) {
		if lex.find(n).flag == nil {
			t.Errorf("%s is in no table", n)
		}
	}
}

// samples are values of converted flags; the other flags accept any value.
var samples = map[string]string{
	"--dtype": "half", "--quantization": "fp8", "--load-format": "dummy", "--max-model-len": "8K", "--generation-config": "vllm",
	"--override-generation-config": `{"top_k": 3}`, "--task": "embed", "--runner": "pooling", "--convert": "classify", "--pooler-config": `{"pooling_type": "MEAN", "normalize": false}`, "--override-pooler-config": `{"pooling_type": "last"}`,
	"--mm-processor-kwargs": `{"max_soft_tokens": 560}`, "--media-io-kwargs": `{"video": {"num_frames": 8}}`, "--mm-processor-cache-gb": "0.5",
	"--allowed-media-domains": "images.example.com", "--allowed-local-media-path": "/media", "--language-model-only": "true", "--limit-mm-per-prompt": `{"image": 1}`, "--tensor-parallel-size": "2", "--pipeline-parallel-size": "2",
	"--gpu-memory-utilization": "0.5", "--kv-cache-memory-bytes": "1G", "--kv-cache-dtype": "fp8", "--swap-space": "4", "--block-size": "32",
	"--kv-events-config": `{"enable_kv_cache_events": true}`, "--max-loras": "2", "--max-lora-rank": "16", "--lora-modules": "sql=/a", "--max-num-seqs": "2", "--max-num-batched-tokens": "8k", "--scheduling-policy": "priority",
	"--cudagraph-capture-sizes": "1", "--max-cudagraph-capture-size": "8", "--compilation-config": "0", "--optimization-level": "1",
	"--speculative-config": `{"method": "ngram", "num_speculative_tokens": 2}`, "--device": "cpu", "--structured-outputs-config": `{"backend": "auto"}`,
	"--show-hidden-metrics-for-version": "0.9", "--port": "1", "--allowed-origins": `["*"]`, "--allowed-methods": `["*"]`, "--allowed-headers": `["*"]`,
	"--max-logprobs": "5", "--max-num-queued-reqs": "9", "--shutdown-timeout": "30", "--uvicorn-log-level": "debug",
	"--default-chat-template-kwargs": `{"enable_thinking": false}`, "--hf-overrides": `{"rope_theta": 1e6}`,
	"--rope-scaling": `{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}`, "--rope-theta": "10000",
}

// TestEveryFlag imports every flag alone. The profile must load and differ from that of the model
// alone, at least in a comment.
func TestEveryFlag(t *testing.T) {
	alone := sourceText(t, "org/model")
	for _, rows := range tables() {
		for _, f := range rows {
			args := []string{"org/model", f.name()}
			if f.arity != boolean {
				value := samples[f.name()]
				if value == "" {
					value = "x1"
				}
				args = append(args, value)
			}
			switch f.name() {
			case "--config", "--spec-method", "--spec-model", "--spec-tokens": // incomplete alone, or needs a file; see the goldens
				continue
			case "--model": // repeats the model
				sourceText(t, args...)
				continue
			}
			if got := sourceText(t, args...); got == alone {
				t.Errorf("%v: nothing came of it", args)
			}
		}
	}
}

// sourceText imports arguments of vllm serve without checking the profile by the schema, which would
// take seconds here and is done by the goldens.
func sourceText(t *testing.T, args ...string) string {
	t.Helper()
	var list []word
	for _, a := range args {
		list = append(list, word{text: a})
	}
	c := &command{words: list}
	d := newDraft(c)
	d.carry(c, nil)
	d.finish()
	if len(d.problems) > 0 {
		t.Fatalf("%v: %v", args, d.failed())
	}
	text, err := d.render()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return string(text)
}

// TestAllTogether checks that all converted flags together give a valid profile.
func TestAllTogether(t *testing.T) {
	args := []string{"vllm", "serve", "org/model", "--enable-lora"}
	for _, rows := range tables() {
		for _, f := range rows {
			if f.to == nil || f.name() == "--config" || strings.HasPrefix(f.name(), "--spec-") {
				continue
			}
			value := samples[f.name()]
			switch {
			case f.arity == boolean:
				args = append(args, f.name())
				continue
			case value == "":
				value = "x1"
			}
			args = append(args, f.name(), value)
		}
	}
	text, err := argsText(args, Options{Name: "all"})
	if err != nil {
		t.Fatal(err)
	}
	p := loads(t, text)
	if p.Name != "all" || p.Parallel.Tensor != 2 || p.Serve.Port != 1 || p.Scheduler.MaxNumBatchedTokens != 8000 || p.Memory.KVCache != schema.Bytes(1<<30) {
		t.Errorf("not what was asked for:\n%s", text)
	}
}

// TestNothingSecret checks that profiles and messages contain no key or token.
func TestNothingSecret(t *testing.T) {
	for _, line := range []string{
		"vllm serve org/model --api-key hunter2 hunter2b --hf-token hunter2",
		"VLLM_API_KEY=hunter2 HF_TOKEN=hunter2 MY_PASSWORD=hunter2 vllm serve org/model",
		"vllm serve org/model --api-key=hunter2 --frobnicate",
		"docker run -e VLLM_API_KEY=hunter2 vllm/vllm-openai --model org/model --api-key hunter2 --port x",
		"vllm serve org/model --api-key=hunter2$X --enable-auto-tool-choice",
	} {
		text, err := argsText([]string{line}, Options{})
		said := string(text)
		if err != nil {
			said = err.Error()
		}
		if strings.Contains(said, "hunter2") {
			t.Errorf("%s\n%s", line, said)
		}
	}
}

// TestPrograms checks that each flag with a field has a conversion, and each conversion a flag.
func TestPrograms(t *testing.T) {
	for _, p := range []*program{vllm(), llamaServer(), llamaCLI(), ollama(), sglang(), tgi()} {
		rows := map[string]bool{}
		for _, f := range p.Flags {
			name := strings.Fields(f.Names)[0]
			rows[name] = true
			if (p.to[name] == nil) != (f.Field == "") && name != "--config" {
				t.Errorf("%s %s: field %q without a conversion, or a conversion without a field", p.Name, name, f.Field)
			}
		}
		for name := range p.to {
			if !rows[name] {
				t.Errorf("%s %s: a conversion of no flag", p.Name, name)
			}
		}
		for _, v := range p.Variables {
			if v.Field != "" && !strings.HasPrefix(v.Field, "--") && environs[v.Name] == nil {
				t.Errorf("%s %s: a variable without a conversion", p.Name, v.Name)
			}
			if strings.HasPrefix(v.Field, "--") && !rows[v.Field] {
				t.Errorf("%s %s: stands for no flag", p.Name, v.Name)
			}
		}
	}
}
