package foreign

// commands are the commands of other programs, and vapp's.
var commands = []struct{ words, command, remark string }{
	{"serve start server launch launch_server llama-server api_server text-generation-launcher", "up", "it starts the server of a profile or a model"},
	{"list ls tags search catalog", "models", "it lists the models that can be planned by name"},
	{"show inspect info memory estimate", "plan", "it shows the memory and the capacity of a profile or a model"},
	{"create modelfile new", "init", "it makes a folder with a first profile, with --model for a model of yours; vapp import converts a Modelfile"},
	{"download fetch install", "pull", "it downloads the model of a profile"},
	{"convert migrate", "import", "it converts a command line of another program to a profile"},
	{"validate lint check", "vet", "it checks profiles"},
	{"llama-cli cli talk", "chat", "it is a chat in the terminal"},
	{"collect-env env check_env health diagnose", "doctor", "it checks this machine"},
	{"generate complete completions prompt run-batch batch", "run", "it answers prompts without a server"},
	{"benchmark llama-bench perf", "bench", "it measures speed"},
	{"gpus gpu hardware", "devices", "it lists the devices that a plan can be made for"},
	{"ps top status", "", "each server is one process: GET /v1/models and GET /metrics of its port say what it serves"},
	{"stop kill down unload", "", "a server stops on SIGTERM or Ctrl-C and lets running requests end"},
	{"reload restart", "", "a server watches its profile and applies changes; SIGHUP reads it again"},
	{"rm remove delete prune", "", "models are in the Hugging Face cache (HF_HUB_CACHE): delete their folder there"},
	{"cp copy mv rename", "", "a profile is a file: copy it with cp"},
	{"push publish upload", "", "vapp uploads nothing; profiles are files for git"},
	{"logs log", "", "a server writes its log to standard error"},
	{"login signin logout", "", "set HF_TOKEN for gated and private models of the hub"},
	{"quantize llama-quantize", "", "set quantization in the profile: weights are quantized while they are loaded"},
	{"embed llama-embedding", "", `set model: convert: "embed" in the profile; vapp up then serves /v1/embeddings`},
	{"update upgrade", "", "install the newer release of vapp"},
}

// fieldWords are names that occur in configurations and Python calls, and are no flags.
var fieldWords = []Hint{
	{"vLLM", "kv_cache_memory", "memory.kvCache", ""},
	{"vLLM", "max_tokens", "sampling.maxTokens", ""},
	{"llama.cpp", "n_ctx", "maxModelLen", ""},
	{"llama.cpp", "ngl", "", layersPlaced},
	{"llama.cpp", "n_gpu_layers", "", layersPlaced},
	{"Ollama", "num_gpu", "", layersPlaced},
	{"llama.cpp", "n_parallel", "scheduler.maxNumSeqs", ""},
	{"llama.cpp", "n_batch", "scheduler.maxNumBatchedTokens", ""},
	{"llama.cpp", "n_threads", "cpu.threads", ""},
	{"llama.cpp", "type_k", "memory.kvCacheDtype", ""},
	{"llama.cpp", "flash_attn", "", "vapp's plan picks the kernels, and vapp plan prints them"},
	{"llama.cpp", "use_mmap", "", mapped},
	{"llama.cpp", "use_mlock", "", mapped},
	{"SGLang", "context_len", "maxModelLen", ""},
}

// layersPlaced answers every number of layers on a GPU.
const layersPlaced = `nothing is needed: the plan places every layer on the device (backend: "cpu" keeps all of them on the CPU)`

// mapped answers how files are read and memory is locked.
const mapped = "nothing is needed: weights are read from a mapped file into an arena that the plan lists"

// hubVariables are variables that all programs share.
var hubVariables = []Variable{
	{"OMP_NUM_THREADS", "", no + "cpu.threads says how many threads backend cpu has"},
	{"PYTORCH_CUDA_ALLOC_CONF", "", no + "vapp allocates what the plan lists, once"},
	{"PYTORCH_ALLOC_CONF", "", no + "vapp allocates what the plan lists, once"},
	{"CUDA_VISIBLE_DEVICES", "", no + "set it for vapp up too"},
	{"NVIDIA_VISIBLE_DEVICES", "", no + "set it for the container of vapp up too"},
	{"HF_TOKEN", "", hubCache},
	{"HUGGING_FACE_HUB_TOKEN", "", hubCache},
	{"HF_*", "", hubCache},
	{"TRANSFORMERS_OFFLINE", "", hubCache},
	{"NCCL_*", "", ranks},
	{"TORCH_*", "", no + "there is no torch in vapp"},
	{"RAY_*", "", ranks},
}
