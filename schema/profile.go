// Package schema reads profiles: it has the CUE definitions of a profile's fields, the
// Go structs that mirror them, and Load, which reports each problem with its position.
// Meaning, bounds, defaults and reload classes are only in the .cue files; a test
// compares the structs with them. It must not know the engine, and it reads only
// profiles, policies and what they import.
// Start reading at Profile in this file and Load in load.go; the fields are in profile.cue.
package schema

// Profile mirrors #Profile after resolution: defaults are filled in, sizes are in bytes
// or tokens. Only Load and Parse return one; treat it as read-only.
type Profile struct {
	Name         string       `json:"name"`
	Model        Model        `json:"model"`
	Target       *Target      `json:"target,omitempty"`
	Backend      string       `json:"backend"`      // auto, cuda, cpu, ref
	Quantization string       `json:"quantization"` // none, fp8, int8, mxfp4
	MaxModelLen  Count        `json:"maxModelLen"`  // tokens, or Auto
	Memory       Memory       `json:"memory"`
	Scheduler    Scheduler    `json:"scheduler"`
	Cudagraph    *Cudagraph   `json:"cudagraph,omitempty"`
	Parsers      Parsers      `json:"parsers"`
	Speculative  *Speculative `json:"speculative,omitempty"`
	Multimodal   *Multimodal  `json:"multimodal,omitempty"`
	Pooling      *Pooling     `json:"pooling,omitempty"`
	LoRA         *LoRA        `json:"lora,omitempty"`
	Parallel     Parallel     `json:"parallel"`
	CPU          CPU          `json:"cpu"`
	CUDA         *CUDA        `json:"cuda,omitempty"`
	Serve        Serve        `json:"serve"`
	Sampling     Sampling     `json:"sampling"`
	Log          Log          `json:"log"`
	Reload       Reload       `json:"reload"`
	Require      *Require     `json:"require,omitempty"`

	origin origin // positions in the source; not part of the value
}

// Model mirrors #Model. Profile.Path resolves Source.
type Model struct {
	Source     string `json:"source"`
	Revision   string `json:"revision,omitempty"`
	Dtype      string `json:"dtype"`      // auto, bfloat16, float16, float32
	LoadFormat string `json:"loadFormat"` // auto, safetensors, gguf, dummy
	// Overrides is nil if no field of config.json is replaced, Rope if the checkpoint's is used.
	Overrides map[string]any `json:"overrides,omitempty"`
	Rope      *Rope          `json:"rope,omitempty"`
	Runner    string         `json:"runner"`  // auto, generate, pooling
	Convert   string         `json:"convert"` // auto, none, embed, classify
}

// Rope mirrors #Rope; 0, "" and nil: absent.
type Rope struct {
	Type            string    `json:"type,omitempty"` // default, linear, dynamic, yarn, longrope, llama3
	Theta           float64   `json:"theta,omitempty"`
	Factor          float64   `json:"factor,omitempty"`
	Original        Count     `json:"original,omitempty"` // tokens
	AttentionFactor float64   `json:"attentionFactor,omitempty"`
	BetaFast        float64   `json:"betaFast,omitempty"`
	BetaSlow        float64   `json:"betaSlow,omitempty"`
	LowFreqFactor   float64   `json:"lowFreqFactor,omitempty"`
	HighFreqFactor  float64   `json:"highFreqFactor,omitempty"`
	Alpha           float64   `json:"alpha,omitempty"`
	ShortFactors    []float64 `json:"shortFactors,omitempty"`
	LongFactors     []float64 `json:"longFactors,omitempty"`
}

// Target mirrors #Target: a GPU by name, or Memory and Cores of a CPU machine. Variant "":
// avx512.
type Target struct {
	GPU     string `json:"gpu,omitempty"`
	Memory  Bytes  `json:"memory,omitempty"`
	Cores   int    `json:"cores,omitempty"`
	Variant string `json:"variant,omitempty"`
}

// Pooling mirrors #Pooling; "" and nil: the checkpoint decides.
type Pooling struct {
	Type                string   `json:"type,omitempty"` // LAST, MEAN, CLS, ALL
	Normalize           *bool    `json:"normalize,omitempty"`
	Activation          string   `json:"activation,omitempty"` // softmax, sigmoid, identity
	ClassifierFromToken []string `json:"classifierFromToken,omitempty"`
}

// Memory mirrors #Memory. Exactly one of Utilization and KVCache is not zero.
type Memory struct {
	Utilization  float64 `json:"utilization,omitempty"`
	KVCache      Bytes   `json:"kvCache,omitempty"`
	KVCacheDtype string  `json:"kvCacheDtype"`
	SwapSpace    Bytes   `json:"swapSpace"`
	BlockSize    int     `json:"blockSize"` // tokens per KV page
	KVRebuild    bool    `json:"kvRebuild"`
	Reserve      Bytes   `json:"reserve"`
}

// Scheduler mirrors #Scheduler. ITLTarget 0: none.
type Scheduler struct {
	MaxNumSeqs          int      `json:"maxNumSeqs"`
	MaxNumBatchedTokens int      `json:"maxNumBatchedTokens"`
	PrefixCaching       bool     `json:"prefixCaching"`
	ChunkedPrefill      bool     `json:"chunkedPrefill"`
	Policy              string   `json:"policy"` // fcfs, priority
	Overlap             bool     `json:"overlap"`
	ITLTarget           Duration `json:"itlTarget,omitempty"`
}

// Cudagraph mirrors #Cudagraph. CaptureSizes nil: vLLM's rule.
type Cudagraph struct {
	Mode         string `json:"mode"`
	CaptureSizes []int  `json:"captureSizes,omitempty"`
}

// Parsers mirrors #Parsers. Reasoning, ToolCall and ChatTemplate are "" if the profile
// does not set them.
type Parsers struct {
	Reasoning                string         `json:"reasoning,omitempty"`
	ToolCall                 string         `json:"toolCall,omitempty"`
	ReasoningContent         bool           `json:"reasoningContent"`
	AutoToolChoice           bool           `json:"autoToolChoice"`
	ExcludeToolsWhenNone     bool           `json:"excludeToolsWhenNone"`
	ChatTemplate             string         `json:"chatTemplate,omitempty"`
	ChatTemplateKwargs       map[string]any `json:"chatTemplateKwargs,omitempty"`
	TrustRequestChatTemplate bool           `json:"trustRequestChatTemplate"`
}

// Speculative mirrors #Speculative.
type Speculative struct {
	Method    string `json:"method"`
	NumTokens int    `json:"numTokens"`
	Model     string `json:"model,omitempty"`

	PromptLookupMin int `json:"promptLookupMin,omitempty"`
	PromptLookupMax int `json:"promptLookupMax,omitempty"`
}

// Multimodal mirrors #Multimodal.
type Multimodal struct {
	Limits MediaLimits `json:"limits"`
	// Image and Video are nil where the checkpoint decides.
	Image *MediaImage `json:"image,omitempty"`
	Video *MediaVideo `json:"video,omitempty"`

	AllowedDomains     []string     `json:"allowedDomains"`
	AllowedPath        string       `json:"allowedPath,omitempty"` // Profile.Path resolves it
	Redirects          bool         `json:"redirects"`
	FetchTimeout       MediaTimeout `json:"fetchTimeout"`
	MaxFetchBytes      Bytes        `json:"maxFetchBytes"`
	MaxSourcePixels    int64        `json:"maxSourcePixels"`
	LoadMemory         Bytes        `json:"loadMemory"`
	Cache              Bytes        `json:"cache"` // 0: nothing is kept
	TrustRequestKwargs bool         `json:"trustRequestKwargs"`
}

// MediaImage holds the size of an image for the model; 0: the checkpoint's.
type MediaImage struct {
	Tokens    int `json:"tokens,omitempty"`
	MinPixels int `json:"minPixels,omitempty"`
	MaxPixels int `json:"maxPixels,omitempty"`
}

// MediaVideo holds how much of a video the model sees.
type MediaVideo struct {
	Frames    int `json:"frames"`
	MinPixels int `json:"minPixels,omitempty"` // 0: the checkpoint's
	MaxPixels int `json:"maxPixels,omitempty"`
}

// MediaTimeout holds the maximum times of a fetch.
type MediaTimeout struct {
	Image Duration `json:"image"`
	Video Duration `json:"video"`
}

// MediaLimits holds the maximum number of items of each kind in one request.
type MediaLimits struct {
	Image int `json:"image"`
	Video int `json:"video"`
	Audio int `json:"audio"`
}

// LoRA mirrors #LoRA. Adapters maps names to folders, which Profile.Path resolves.
type LoRA struct {
	MaxLoras             int               `json:"maxLoras"`
	MaxRank              int               `json:"maxRank"`
	Adapters             map[string]string `json:"adapters,omitempty"`
	AllowRuntimeUpdating bool              `json:"allowRuntimeUpdating"`
}

// Parallel mirrors #Parallel.
type Parallel struct {
	Tensor   int      `json:"tensor"`
	Pipeline int      `json:"pipeline"`
	Reduce   string   `json:"reduce"` // auto, f32, bf16
	Key      *Key     `json:"key,omitempty"`
	Wait     Duration `json:"wait"`
}

// Ranks returns how many ranks a model has, at least 1.
func (p Parallel) Ranks() int { return max(1, p.Tensor) * max(1, p.Pipeline) }

// CPU mirrors #CPU.
type CPU struct {
	Threads   Count   `json:"threads"`   // a number, or Auto
	NUMA      string  `json:"numa"`      // auto, off
	Ranks     int     `json:"ranks"`     // of the model on this machine
	HTTPShare float64 `json:"httpShare"` // fraction of CPU time
	Variant   string  `json:"variant"`   // auto, avx2, avx512, avx512bf16, amx, neon, dotprod, i8mm

	Favor       string `json:"favor"`       // auto, decode, prefill
	Activations string `json:"activations"` // auto, int8
	PackedCache string `json:"packedCache"` // off, auto, or a directory
}

// CUDA mirrors #CUDA.
type CUDA struct {
	Activations string `json:"activations"` // auto, 16bit, fp8
	Linear      string `json:"linear"`      // auto, own, cublaslt
}

// Sampling mirrors #Sampling; nil: GenerationConfig selects the default.
type Sampling struct {
	GenerationConfig  string   `json:"generationConfig"` // auto, vllm
	Temperature       *float64 `json:"temperature,omitempty"`
	TopP              *float64 `json:"topP,omitempty"`
	TopK              *int     `json:"topK,omitempty"`
	MinP              *float64 `json:"minP,omitempty"`
	RepetitionPenalty *float64 `json:"repetitionPenalty,omitempty"`
	MaxTokens         *int     `json:"maxTokens,omitempty"`
}

// Log mirrors #Log.
type Log struct {
	Level  string `json:"level"`  // debug, info, warn, error
	Format string `json:"format"` // text, json
	Audit  *Audit `json:"audit,omitempty"`
}

// Audit mirrors #Audit.
type Audit struct {
	File    string `json:"file"`
	MaxSize Bytes  `json:"maxSize"`
	Keep    int    `json:"keep"`
}

// Values of Reload.Structural.
const (
	Report     = "report"
	Swap       = "swap"
	DrainFirst = "drain"
)

// Reload mirrors #Reload.
type Reload struct {
	Watch      bool     `json:"watch"`
	Debounce   Duration `json:"debounce"`
	Structural string   `json:"structural"` // Report, Swap, DrainFirst
	Queue      int      `json:"queue"`
}

// Require mirrors #Require. Concurrency maps ">=N" to a length in tokens.
type Require struct {
	Concurrency map[string]Count `json:"concurrency,omitempty"`
	ITL         *Latency         `json:"itl,omitempty"`
	TTFT        *Latency         `json:"ttft,omitempty"`
}
