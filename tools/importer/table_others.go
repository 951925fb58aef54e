package importer

import (
	"net"
	"strconv"
	"strings"
)

// llamaConverters maps the flags of foreign.LlamaCPP with a counterpart to the conversion of their
// values.
var llamaConverters = map[string]converter{
	"--model":                localModel,
	"--hf-repo":              hubModel,
	"--hf-file":              func(d *draft, s setting) { d.fields["?file"] = field{by: s} },
	"--ctx-size":             context,
	"--parallel":             positive("scheduler.maxNumSeqs"),
	"--batch-size":           integer("scheduler.maxNumBatchedTokens"),
	"--threads":              positive("cpu.threads"),
	"--host":                 text("serve.host"),
	"--port":                 integer("serve.port"),
	"--alias":                commaWords("serve.servedModelName"),
	"--api-key":              apiKeys,
	"--api-key-file":         func(d *draft, s setting) { d.set("serve.apiKeys", "[{file: "+quote(s.value())+"}]", s) },
	"--ssl-key-file":         text("serve.tls.keyFile"),
	"--ssl-cert-file":        text("serve.tls.certFile"),
	"--cache-type-k":         choice("memory.kvCacheDtype", cacheTypes),
	"--cache-prompt":         yes("scheduler.prefixCaching"),
	"--chat-template":        inlineTemplate,
	"--chat-template-file":   chatTemplate,
	"--chat-template-kwargs": templateKwargs,
	"--temp":                 number("sampling.temperature"),
	"--top-k":                integer("sampling.topK"),
	"--top-p":                number("sampling.topP"),
	"--min-p":                number("sampling.minP"),
	"--repeat-penalty":       number("sampling.repetitionPenalty"),
	"--predict":              positive("sampling.maxTokens"),
	"--embedding":            pooled("embed"),
	"--reranking":            pooled("classify"),
	"--pooling":              poolingType,
	"--gpu-layers":           layers,
	"--rope-scaling":         llamaRope,
	"--rope-scale":           ropePart("factor"),
	"--rope-freq-base":       ropePart("theta"),
	"--rope-freq-scale":      frequencyScale,
	"--yarn-orig-ctx":        ropePart("original"),
	"--yarn-attn-factor":     ropePart("attentionFactor"),
	"--yarn-beta-slow":       ropePart("betaSlow"),
	"--yarn-beta-fast":       ropePart("betaFast"),
	"--verbose":              debug,
}

// ollamaConverters does so for foreign.Ollama.
var ollamaConverters = map[string]converter{
	"--model":          ollamaModel,
	"--num-ctx":        context,
	"--num-predict":    positive("sampling.maxTokens"),
	"--temperature":    number("sampling.temperature"),
	"--top-k":          integer("sampling.topK"),
	"--top-p":          number("sampling.topP"),
	"--min-p":          number("sampling.minP"),
	"--repeat-penalty": number("sampling.repetitionPenalty"),
	"--num-thread":     positive("cpu.threads"),
	"--num-batch":      integer("scheduler.maxNumBatchedTokens"),
	"--num-gpu":        layers,
	"--verbose":        debug,
}

// sglangConverters does so for foreign.SGLang.
var sglangConverters = map[string]converter{
	"--model-path":               modelSource,
	"--revision":                 text("model.revision"),
	"--dtype":                    choice("model.dtype", dtypes),
	"--quantization":             quantize,
	"--load-format":              choice("model.loadFormat", loadFormats),
	"--json-model-override-args": configOverrides,
	"--context-length":           tokens("maxModelLen"),
	"--served-model-name":        words("serve.servedModelName"),
	"--is-embedding":             pooled("embed"),
	"--host":                     text("serve.host"),
	"--port":                     integer("serve.port"),
	"--api-key":                  apiKeys,
	"--tensor-parallel-size":     integer("parallel.tensor"),
	"--pipeline-parallel-size":   integer("parallel.pipeline"),
	"--mem-fraction-static":      staticShare,
	"--kv-cache-dtype":           choice("memory.kvCacheDtype", kvDtypes),
	"--max-running-requests":     integer("scheduler.maxNumSeqs"),
	"--max-queued-requests":      integer("serve.limits.maxQueue"),
	"--chunked-prefill-size":     chunkSize,
	"--page-size":                blockSize,
	"--disable-radix-cache":      not("scheduler.prefixCaching"),
	"--disable-overlap-schedule": not("scheduler.overlap"),
	"--disable-cuda-graph":       eager,
	"--cuda-graph-max-bs":        largestCapture,
	"--cuda-graph-bs":            captureSizes,
	"--chat-template":            namedTemplate,
	"--reasoning-parser":         text("parsers.reasoning"),
	"--tool-call-parser":         text("parsers.toolCall"),
	"--device":                   choice("backend", devices),
	"--log-level":                choice("log.level", logLevels),
	"--log-requests":             yes("serve.logRequests"),
	"--enable-cache-report":      yes("serve.promptTokensDetails"),
}

// tgiConverters does so for foreign.TGI.
var tgiConverters = map[string]converter{
	"--model-id":                 modelSource,
	"--revision":                 text("model.revision"),
	"--dtype":                    choice("model.dtype", dtypes),
	"--quantize":                 quantizeTGI,
	"--kv-cache-dtype":           choice("memory.kvCacheDtype", map[string]string{"fp8_e4m3fn": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2"}),
	"--num-shard":                integer("parallel.tensor"),
	"--max-total-tokens":         tokens("maxModelLen"),
	"--max-batch-size":           integer("scheduler.maxNumSeqs"),
	"--max-batch-prefill-tokens": integer("scheduler.maxNumBatchedTokens"),
	"--max-concurrent-requests":  integer("serve.limits.maxConcurrentRequests"),
	"--cuda-memory-fraction":     number("memory.utilization"),
	"--hostname":                 text("serve.host"),
	"--port":                     integer("serve.port"),
	"--api-key":                  apiKeys,
	"--json-output": func(d *draft, s setting) {
		d.set("log.format", map[bool]string{true: `"json"`, false: `"text"`}[s.on], s)
	},
	"--cors-allow-origin": commaWords("serve.cors.allowedOrigins"),
	"--otlp-endpoint":     tracesEndpoint,
	"--otlp-service-name": later("serviceName"),
}

// cacheTypes maps ggml's types of the KV cache to vapp's.
var cacheTypes = map[string]string{
	"f32": "float32", "f16": "float16", "bf16": "bfloat16",
	"q8_0": otherKV, "q4_0": otherKV, "q4_1": otherKV, "iq4_nl": otherKV, "q5_0": otherKV, "q5_1": otherKV,
}

// positive returns a converter that copies a whole number above 0; 0 and below is the default.
func positive(path string) converter {
	return func(d *draft, s setting) {
		n, err := strconv.ParseInt(s.value(), 10, 64)
		switch {
		case err != nil:
			d.invalid(s, "a whole number")
		case n <= 0:
			d.notef(s, "vapp's default, as there")
		default:
			d.set(path, strconv.FormatInt(n, 10), s)
		}
	}
}

// context sets the length of a sequence; 0: the model's own.
func context(d *draft, s setting) {
	n, err := strconv.ParseInt(s.value(), 10, 64)
	switch {
	case err != nil || n < 0:
		d.invalid(s, "a number of tokens, such as 8192, or 0")
	case n == 0:
		d.set("maxModelLen", `"auto"`, s)
	default:
		d.set("maxModelLen", strconv.FormatInt(n, 10), s)
	}
}

// commaWords returns a converter that copies words separated by commas.
func commaWords(path string) converter {
	return func(d *draft, s setting) { d.set(path, quotes(strings.Split(s.value(), ",")), s) }
}

// layers handles a number of layers on the GPU: 0 is the backend cpu, any other number is no
// setting of vapp, which places all layers.
func layers(d *draft, s setting) {
	switch n, err := strconv.Atoi(s.value()); {
	case err != nil && s.value() != "auto" && s.value() != "all":
		d.invalid(s, "a number of layers, auto or all")
	case err == nil && n == 0:
		d.set("backend", `"cpu"`, s)
	default:
		d.notef(s, no+"the plan places every layer on the device")
	}
}

// localModel sets a file, relative to the folder in which the command runs.
func localModel(d *draft, s setting) {
	v := s.value()
	if v == "" {
		d.invalid(s, "a GGUF file")
		return
	}
	d.set("model.source", quote(v), s, pathRemark(v)...)
}

// hubModel sets org/name[:quantization].
func hubModel(d *draft, s setting) {
	repo, quant, picked := strings.Cut(s.value(), ":")
	if strings.Count(repo, "/") != 1 || strings.ContainsAny(repo[:1], "./~") {
		d.invalid(s, "org/name or org/name:QUANTIZATION")
		return
	}
	d.set("model.source", quote(repo), s)
	if picked {
		d.notef(s, no+"vapp does not pick %q from a hub; name the GGUF file: model: source: %q", short(quant), repo+":FILE.gguf")
	}
}

// ollamaModel sets a file or a repository of Hugging Face. Names of Ollama's own library are refused.
func ollamaModel(d *draft, s setting) {
	v := s.value()
	for _, host := range []string{"hf.co/", "huggingface.co/"} {
		if repo, ok := strings.CutPrefix(v, host); ok {
			s.values = []word{{text: repo, at: s.at}}
			hubModel(d, s)
			return
		}
	}
	switch {
	case v == "":
		d.invalid(s, "a GGUF file, a folder or hf.co/org/name")
	case strings.HasPrefix(v, "/") || strings.HasPrefix(v, ".") || strings.HasPrefix(v, "~") || strings.HasSuffix(strings.ToLower(v), ".gguf"):
		localModel(d, s)
		if strings.Contains(v, "/blobs/sha256") {
			d.set("model.loadFormat", `"gguf"`, s)
		}
	default:
		d.problem(Refused, s.at, "name its GGUF file, which the FROM line of ollama show --modelfile prints, or hf.co/org/name", "%q: a name of Ollama's library, which vapp does not read", short(v))
	}
}

// inlineTemplate sets a Jinja template; a name of a template of llama.cpp has no counterpart.
func inlineTemplate(d *draft, s setting) {
	if strings.Contains(s.value(), "{{") || strings.Contains(s.value(), "{%") {
		d.set("parsers.chatTemplate", quote(s.value()), s)
		return
	}
	d.notef(s, no+"vapp has no templates by name; it takes the model's own")
}

// namedTemplate sets a path or a template; a name of a template of SGLang has no counterpart.
func namedTemplate(d *draft, s setting) {
	if strings.ContainsAny(s.value(), "/.") {
		chatTemplate(d, s)
		return
	}
	inlineTemplate(d, s)
}

// pooled returns a converter that makes a model return vectors.
func pooled(task string) converter {
	return func(d *draft, s setting) {
		if s.on {
			d.set("model.convert", quote(task), s)
		}
	}
}

func poolingType(d *draft, s setting) {
	choice("pooling.type", map[string]string{"mean": "MEAN", "cls": "CLS", "last": "LAST", "none": "ALL", "rank": no + "model.convert says that the model scores"})(d, s)
}

func debug(d *draft, s setting) {
	if s.on {
		d.set("log.level", `"debug"`, s)
	}
}

// staticShare sets the share of memory; SGLang's covers weights and KV cache only.
func staticShare(d *draft, s setting) {
	if n, ok := decimal(s.value()); ok {
		d.set("memory.utilization", n, s, "SGLang's share is of weights and KV cache, vapp's of all that the server uses.")
		return
	}
	d.invalid(s, "a number")
}

// chunkSize sets the tokens of a step; -1 turns chunked prefill off.
func chunkSize(d *draft, s setting) {
	if s.value() == "-1" {
		d.set("scheduler.chunkedPrefill", "false", s)
		return
	}
	integer("scheduler.maxNumBatchedTokens")(d, s)
}

// quantizeTGI is quantize with TGI's names.
func quantizeTGI(d *draft, s setting) {
	switch v := strings.ToLower(s.value()); v {
	case "eetq", "exl2", "bitsandbytes-nf4", "bitsandbytes-fp4":
		d.notef(s, no+"vapp reads bf16, fp16, fp32, fp8, mxfp4 and GGUF weights; take a checkpoint of that kind")
	default:
		quantize(d, s)
	}
}

// address sets host and port from OLLAMA_HOST: host, :port, host:port or a URL.
func address(d *draft, s setting) {
	v := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s.value(), "http://"), "https://"), "/")
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		host, port = v, ""
	}
	if host != "" {
		d.set("serve.host", quote(host), s)
	}
	if port != "" {
		s.values = []word{{text: port, at: s.at}}
		integer("serve.port")(d, s)
	}
}

// listen sets the address of a program where the command says none, so that clients find the server
// where it was.
func (d *draft) listen(host string, port int) {
	by := setting{given: d.lex.program.Command}
	if _, ok := d.fields["serve.host"]; !ok && host != "" {
		d.set("serve.host", quote(host), by)
	}
	if _, ok := d.fields["serve.port"]; !ok {
		d.set("serve.port", strconv.Itoa(port), by)
	}
}

func settleLlama(d *draft) {
	settleLlamaModel(d)
	d.listen("127.0.0.1", 8080)
	context, seqs := d.fields["maxModelLen"], d.fields["scheduler.maxNumSeqs"]
	all, err := strconv.Atoi(context.cue)
	n, err2 := strconv.Atoi(seqs.cue)
	if err == nil && err2 == nil && n > 1 && all >= n {
		d.set("maxModelLen", strconv.Itoa(all/n), context.by, "llama-server shares "+context.by.given+" "+context.cue+" among "+seqs.cue+" sequences.")
	}
}

// settleLlamaModel joins the repository and its file.
func settleLlamaModel(d *draft) {
	file, ok := d.fields["?file"]
	delete(d.fields, "?file")
	if !ok {
		return
	}
	source := d.fields["model.source"]
	repo, _, _ := strings.Cut(source.by.value(), ":")
	if source.by.flag == nil || source.by.flag.name() != "--hf-repo" {
		d.notef(file.by, "without effect without --hf-repo")
		return
	}
	d.set("model.source", quote(repo+":"+file.by.value()), source.by)
}

func settleOllama(d *draft) { d.listen("127.0.0.1", 11434) }
func settleSGLang(d *draft) { d.listen("127.0.0.1", 30000) }
func settleTGI(d *draft)    { d.listen("", 3000) }
