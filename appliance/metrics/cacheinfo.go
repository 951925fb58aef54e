package metrics

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// CacheConfig holds the labels of vllm:cache_config_info.
type CacheConfig struct {
	BlockSize     int     // tokens of a page
	Pages         int     // pages of the arena: num_gpu_blocks
	Dtype         string  // cache_dtype, in vLLM's words
	PrefixCaching bool    //
	Utilization   float64 // memory.utilization; 0: not set
	Bytes         int64   // memory.kvCache; 0: not set
	SlidingWindow int     // tokens; 0: none
	SwapBytes     int64   // swap space for preempted sequences
	SwapPages     int     // pages of it, counted as Pages: num_cpu_blocks
}

// cacheInfo is a gauge of 1 whose labels are the settings of the newest engine.
type cacheInfo struct {
	now atomic.Pointer[fixed]
}

func newCacheInfo(c Config) *cacheInfo {
	i := &cacheInfo{}
	i.set(c)
	return i
}

func (i *cacheInfo) set(c Config) {
	i.now.Store(&fixed{cacheGauge(c)})
}

// Describe implements prometheus.Collector. It sends nothing, since the labels change.
func (i *cacheInfo) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (i *cacheInfo) Collect(out chan<- prometheus.Metric) { out <- i.now.Load() }

// cacheGauge returns a gauge of 1 whose labels are the settings in Python's spelling, as
// in vLLM. Labels for settings that vapp does not have are None.
func cacheGauge(c Config) prometheus.Gauge {
	const none = "None"
	k := c.Cache
	orNone := func(set bool, v string) string {
		if set {
			return v
		}
		return none
	}
	labels := prometheus.Labels{
		"block_size":               strconv.Itoa(k.BlockSize),
		"cache_dtype":              k.Dtype,
		"calculate_kv_scales":      "False",
		"cpu_kvcache_space_bytes":  none,
		"enable_prefix_caching":    pythonBool(k.PrefixCaching),
		"engine":                   strconv.Itoa(c.Engine),
		"gpu_memory_utilization":   orNone(k.Utilization > 0, strconv.FormatFloat(k.Utilization, 'g', -1, 64)),
		"is_attention_free":        "False",
		"kv_cache_memory_bytes":    orNone(k.Bytes > 0, strconv.FormatInt(k.Bytes, 10)),
		"kv_offloading_backend":    none,
		"kv_offloading_size":       none,
		"mamba_block_size":         none,
		"mamba_cache_dtype":        none,
		"num_cpu_blocks":           orNone(k.SwapBytes > 0, strconv.Itoa(k.SwapPages)),
		"num_gpu_blocks":           strconv.Itoa(k.Pages),
		"num_gpu_blocks_override":  none,
		"prefix_caching_hash_algo": orNone(k.PrefixCaching, "sha256"),
		"sliding_window":           orNone(k.SlidingWindow > 0, strconv.Itoa(k.SlidingWindow)),
		"swap_space":               strconv.FormatInt(k.SwapBytes>>30, 10),
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "vllm:cache_config_info", Help: "Settings of the KV cache, as labels.", ConstLabels: labels,
	})
	g.Set(1)
	return g
}

func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
