package importer

import (
	"strconv"
	"strings"
)

// environs are the variables with a counterpart in a profile, and their conversion.
var environs = map[string]func(d *draft, v variable, s setting){
	"VLLM_API_KEY": keyVariable, "VLLM_LOGGING_LEVEL": logVariable, "VLLM_LOG_STATS_INTERVAL": statsVariable, "VLLM_CPU_KVCACHE_SPACE": cpuCacheVariable,
	"VLLM_ALLOW_RUNTIME_LORA_UPDATING":   runtimeAdapters,
	"VLLM_IMAGE_FETCH_TIMEOUT":           mediaVariable("multimodal.fetchTimeout.image", inSeconds),
	"VLLM_VIDEO_FETCH_TIMEOUT":           mediaVariable("multimodal.fetchTimeout.video", inSeconds),
	"VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB":    mediaVariable("multimodal.maxFetchBytes", inMebibytes),
	"VLLM_MAX_IMAGE_PIXELS":              mediaVariable("multimodal.maxSourcePixels", plainNumber),
	"VLLM_MEDIA_URL_ALLOW_REDIRECTS":     redirectsVariable,
	"PYTHONHASHSEED":                     func(d *draft, _ variable, s setting) { d.fields["?hashSeed"] = field{by: s} },
	"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": func(d *draft, _ variable, s setting) { later("protocol")(d, s) },
	"OTEL_SERVICE_NAME":                  func(d *draft, _ variable, s setting) { later("serviceName")(d, s) },
	"OLLAMA_HOST":                        func(d *draft, v variable, s setting) { address(d, s) },
	"OLLAMA_NUM_PARALLEL":                func(d *draft, v variable, s setting) { positive("scheduler.maxNumSeqs")(d, s) },
	"OLLAMA_CONTEXT_LENGTH":              func(d *draft, v variable, s setting) { context(d, s) },
	"OLLAMA_MAX_QUEUE":                   func(d *draft, v variable, s setting) { integer("serve.limits.maxQueue")(d, s) },
	"OLLAMA_KV_CACHE_TYPE":               func(d *draft, v variable, s setting) { choice("memory.kvCacheDtype", cacheTypes)(d, s) },
	"OLLAMA_ORIGINS":                     func(d *draft, v variable, s setting) { commaWords("serve.cors.allowedOrigins")(d, s) },
	"OLLAMA_GPU_OVERHEAD":                func(d *draft, v variable, s setting) { bytesOf("memory.reserve", 1)(d, s) },
	"OLLAMA_DEBUG": func(d *draft, v variable, s setting) {
		if on := s.value(); on != "" && on != "0" && on != "false" {
			d.set("log.level", `"debug"`, s)
		}
	},
}

// variables converts or notes the variables of the process, the last value of each.
func (d *draft) variables(vars variables) {
	for i, v := range vars {
		if last, _ := vars.lookup(v.name); last != v.value || vars[:i].has(v) {
			continue
		}
		for _, e := range d.lex.program.Variables {
			prefix, all := strings.CutSuffix(e.Name, "*")
			if v.name != e.Name && !(all && strings.HasPrefix(v.name, prefix)) {
				continue
			}
			s := setting{flag: environFlag, given: v.name, values: []word{v.value}, at: v.value.at}
			switch to := environs[e.Name]; {
			case strings.HasPrefix(e.Field, "--"):
				d.flagVariable(e.Field, s)
			case to == nil:
				d.note(variableText(v), e.Why)
			case v.value.missing != "" && v.name != "VLLM_API_KEY":
				d.unresolved(v.value, v.name)
			default:
				to(d, v, s)
			}
			break
		}
	}
}

// flagVariable handles a variable that stands for a flag.
func (d *draft) flagVariable(name string, s setting) {
	p := &parser{d: d}
	s.flag = d.lex.byName[name]
	p.keep(s, match{flag: s.flag})
	for _, got := range p.out {
		d.one(got)
	}
}

func (v variables) has(x variable) bool {
	for _, o := range v {
		if o == x {
			return true
		}
	}
	return false
}

// environFlag replaces the flag in settings that come from a variable.
var environFlag = &flag{names: "environment", arity: one}

// variableText returns a variable as it was written; secrets are masked.
func variableText(v variable) string {
	upper := strings.ToUpper(v.name)
	for _, w := range []string{"TOKEN", "KEY", "SECRET", "PASSWORD", "HEADERS"} {
		if strings.Contains(upper, w) {
			return v.name
		}
	}
	return v.name + "=" + short(v.value.text)
}

// keyVariable refers to the variable from serve.apiKeys, so that the profile does not contain the
// key.
func keyVariable(d *draft, v variable, s setting) {
	clear := v.value.missing == "" && v.value.text != ""
	s.values = nil
	if _, given := d.fields["serve.apiKeys"]; !given {
		d.keys(s, []string{v.name}, clear)
	}
}

func logVariable(d *draft, v variable, s setting) {
	if to, ok := logLevels[strings.ToLower(v.value.text)]; ok {
		d.set("log.level", quote(to), s)
		return
	}
	d.note(variableText(v), no+"log.level is debug, info, warn or error")
}

func statsVariable(d *draft, v variable, s setting) {
	if n, err := strconv.ParseFloat(v.value.text, 64); err == nil && n >= 0 && n < 1e6 {
		d.set("serve.statsInterval", quote(strconv.Itoa(int(n*1000))+"ms"), s)
		return
	}
	d.note(variableText(v), no+"serve.statsInterval is a time, such as 10s")
}

// cpuCacheVariable converts the size of vLLM's KV cache on a CPU, in GiB.
func cpuCacheVariable(d *draft, v variable, s setting) {
	if n, ok := sizeOf(v.value.text, 1<<30); ok && n > 0 {
		d.set("memory.kvCache", size(n), s, "vLLM takes this on a CPU: "+v.name+".")
		return
	}
	d.note(variableText(v), no+"memory.kvCache is a size, such as 40GiB")
}
