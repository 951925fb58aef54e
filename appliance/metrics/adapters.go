package metrics

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// AdapterUse is the use of LoRA slots: the names of the adapters of running and of waiting requests.
type AdapterUse struct {
	Slots            int
	Running, Waiting []string
}

// WatchAdapters shows the adapters of an engine in vllm:lora_requests_info, in place of those of an earlier one. use is
// called at each scrape and must be cheap; now is the clock. nil for use: no engine has slots any more.
func (m *Metrics) WatchAdapters(use func() AdapterUse, now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loras == nil {
		if use == nil {
			return
		}
		m.loras = &adapterInfo{desc: prometheus.NewDesc("vllm:lora_requests_info", "Time of the scrape; the labels are the LoRA slots and the adapters in use.",
			[]string{"max_lora", "waiting_lora_adapters", "running_lora_adapters"}, nil), now: now}
		defer m.own.MustRegister(m.loras)
	}
	m.loras.use.Store(&use)
}

// adapterInfo is a gauge of the Unix time whose labels are the adapters in use, as in vLLM. Unlike
// vLLM's it has one series at each scrape, the present one.
type adapterInfo struct {
	desc *prometheus.Desc
	use  atomic.Pointer[func() AdapterUse]
	now  func() time.Time
}

// Describe implements prometheus.Collector.
func (a *adapterInfo) Describe(out chan<- *prometheus.Desc) { out <- a.desc }

// Collect implements prometheus.Collector.
func (a *adapterInfo) Collect(out chan<- prometheus.Metric) {
	use := *a.use.Load()
	if use == nil {
		return
	}
	u := use()
	out <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, float64(a.now().UnixNano())/1e9,
		strconv.Itoa(u.Slots), commaList(u.Waiting), commaList(u.Running))
}

// commaList returns names in order, with commas between.
func commaList(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names)), ",")
}
