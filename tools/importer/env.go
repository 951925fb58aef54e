package importer

import (
	"strconv"
	"strings"
)

// environ is an environment variable of vLLM: how it is converted, or why it has no counterpart. A
// name that ends in * matches all names with that prefix.
type environ struct {
	name string
	to   func(d *draft, v variable, s setting)
	why  string
}

// environs are the variables that people set for vLLM. Other variables with its prefix get a note
// without a reason.
var environs = []environ{
	{"VLLM_API_KEY", keyVariable, ""},
	{"VLLM_LOGGING_LEVEL", logVariable, ""},
	{"VLLM_LOG_STATS_INTERVAL", statsVariable, ""},
	{"VLLM_CPU_KVCACHE_SPACE", cpuCacheVariable, ""},
	{"VLLM_USE_V1", nil, no + "vapp has one engine"},
	{"VLLM_ENABLE_V1_MULTIPROCESSING", nil, oneEngine},
	{"VLLM_WORKER_MULTIPROC_METHOD", nil, oneEngine},
	{"VLLM_ATTENTION_BACKEND", nil, kernelChoice},
	{"VLLM_USE_TRITON_FLASH_ATTN", nil, kernelChoice},
	{"VLLM_FLASH_ATTN_VERSION", nil, kernelChoice},
	{"VLLM_USE_FLASHINFER*", nil, kernelChoice},
	{"VLLM_FLASHINFER*", nil, kernelChoice},
	{"VLLM_USE_DEEP_GEMM*", nil, kernelChoice},
	{"VLLM_ROCM_*", nil, kernelChoice},
	{"VLLM_MXFP4_*", nil, kernelChoice},
	{"VLLM_ALL2ALL_BACKEND", nil, noExperts},
	{"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", nil, no + "graphs are a line of vapp's plan, always"},
	{"VLLM_ENABLE_STARTUP_PLAN", nil, no + "vapp plans before every start"},
	{"VLLM_ALLOW_LONG_MAX_MODEL_LEN", nil, no + "vapp refuses lengths that the model was not made for"},
	{"VLLM_ALLOW_RUNTIME_LORA_UPDATING", nil, no + "vapp changes no adapters while it runs"},
	{"VLLM_SERVER_DEV_MODE", nil, no + "vapp has no development routes"},
	{"VLLM_TORCH_PROFILER_DIR", nil, traces},
	{"VLLM_LOGGING_CONFIG_PATH", nil, no + "log.level and log.format say what is written"},
	{"VLLM_CONFIGURE_LOGGING", nil, no + "log.level and log.format say what is written"},
	{"VLLM_CACHE_ROOT", nil, no + "vapp compiles nothing at start, and caches nothing"},
	{"VLLM_DISABLE_COMPILE_CACHE", nil, no + "vapp compiles nothing at start, and caches nothing"},
	{"VLLM_HOST_IP", nil, oneMachine},
	{"VLLM_PORT", nil, oneMachine},
	{"VLLM_RPC_TIMEOUT", nil, oneEngine},
	{"VLLM_ENGINE_ITERATION_TIMEOUT_S", nil, oneEngine},
	{"VLLM_HTTP_TIMEOUT_KEEP_ALIVE", nil, no + "vapp has one timeout for idle connections"},
	{"VLLM_USE_MODELSCOPE", nil, otherHub},
	{"VLLM_CPU_OMP_THREADS_BIND", nil, no + "cpu.threads says how many; put taskset before vapp up to bind them"},
	{"VLLM_CPU_NUM_OF_RESERVED_CPU", nil, no + "cpu.httpShare says what the pool leaves to HTTP"},
	{"VLLM_NO_USAGE_STATS", nil, no + "vapp sends no usage data"},
	{"DO_NOT_TRACK", nil, no + "vapp sends no usage data"},
	{"VLLM_*", nil, no + "vapp reads no VLLM_ variables but those that a profile names"},
	{"OMP_NUM_THREADS", nil, no + "cpu.threads says how many threads backend cpu has"},
	{"PYTORCH_CUDA_ALLOC_CONF", nil, no + "vapp allocates what the plan lists, once"},
	{"PYTORCH_ALLOC_CONF", nil, no + "vapp allocates what the plan lists, once"},
	{"CUDA_VISIBLE_DEVICES", nil, no + "set it for vapp up too"},
	{"NVIDIA_VISIBLE_DEVICES", nil, no + "set it for the container of vapp up too"},
	{"HF_TOKEN", nil, hubCache},
	{"HUGGING_FACE_HUB_TOKEN", nil, hubCache},
	{"HF_*", nil, hubCache},
	{"TRANSFORMERS_OFFLINE", nil, hubCache},
	{"NCCL_*", nil, ranks},
	{"TORCH_*", nil, no + "there is no torch in vapp"},
	{"RAY_*", nil, ranks},
}

// variables converts or notes the variables of the process, the last value of each.
func (d *draft) variables(vars variables) {
	for i, v := range vars {
		if last, _ := vars.lookup(v.name); last != v.value || vars[:i].has(v) {
			continue
		}
		for _, e := range environs {
			prefix, all := strings.CutSuffix(e.name, "*")
			if v.name != e.name && !(all && strings.HasPrefix(v.name, prefix)) {
				continue
			}
			s := setting{flag: environFlag, given: v.name, values: []word{v.value}, at: v.value.at}
			if e.to != nil {
				e.to(d, v, s)
			} else {
				d.note(variableText(v), e.why)
			}
			break
		}
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
	for _, w := range []string{"TOKEN", "KEY", "SECRET", "PASSWORD"} {
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
