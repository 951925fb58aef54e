package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// vappSeries are the series that vLLM does not have.
type vappSeries struct {
	plan, actual *vec[*gauge]
	process      *gauge
	reloads      *vec[*counter]
	lastReload   *gauge
	build        *vec[*gauge]
	itlTarget    *gauge
	itlBeyond    prometheus.Counter
	graphSteps   *vec[*counter]
	stale        *staleness
	readFailures *vec[*counter]
	drift        *driftSeries
	swaps        *swapsSeries
}

func newVappSeries(r prometheus.Registerer) *vappSeries {
	f := factory{Registerer: r}
	s := &vappSeries{
		plan:       f.gauges("vapp_plan_bytes", "What the plan gives an item of the ledger.", "item"),
		actual:     f.gauges("vapp_actual_bytes", "What an item of the ledger takes in this process.", "item"),
		process:    f.gauge("vapp_plan_process_bytes", "What the plan gives this process in the machine's memory; process_resident_memory_bytes is what it takes."),
		reloads:    f.counters("vapp_reload_total", "Outcomes of reading the profile again, by the class of the change and what became of it.", "class", "outcome"),
		lastReload: f.gauge("vapp_last_reload_timestamp_seconds", "When the profile was last read again; 0: never."),
		build:      f.gauges("vapp_build_info", "The version of vapp and of the Go that built it.", "version", "goversion"),
		itlTarget:  f.gauge("vapp_itl_target_seconds", "What scheduler.itlTarget lets a stream wait from one token to the next; 0: nothing bounds it."),
		itlBeyond:  f.counter("vapp_itl_beyond_target_steps_total", "Steps for which streams waited longer than the target."),
	}
	s.graphSteps = f.counters("vapp_graph_steps_total", "Steps of a device that captures graphs, by how they ran (FULL, PIECEWISE, NONE) and why without one.", "runtime_mode", "reason")
	s.stale = newStaleness()
	r.MustRegister(s.stale)
	s.swaps = newSwapsSeries(r)
	s.drift = newDriftSeries()
	r.MustRegister(s.drift)
	s.readFailures = f.counters("vapp_profile_read_failures_total", "Times a file of the profile could not be read, retries included.", "part")
	for _, p := range parts {
		s.readFailures.WithLabelValues(p)
	}
	return s
}

// ResetLedger removes the items of the ledger, before those of another engine are set.
func (m *Metrics) ResetLedger() {
	m.vapp.plan.Reset()
	m.vapp.actual.Reset()
}

// SetPlan sets the planned bytes of an item of the ledger.
func (m *Metrics) SetPlan(item string, bytes int64) {
	m.vapp.plan.WithLabelValues(item).Set(float64(bytes))
}

// SetActual sets the allocated bytes of an item of the ledger.
func (m *Metrics) SetActual(item string, bytes int64) {
	m.vapp.actual.WithLabelValues(item).Set(float64(bytes))
}

// SetPlannedProcess sets the bytes that the plan gives this process in the machine's memory.
func (m *Metrics) SetPlannedProcess(bytes int64) { m.vapp.process.Set(float64(bytes)) }

// SetITLTarget sets the target of inter-token latency; 0: none.
func (m *Metrics) SetITLTarget(d time.Duration) { m.vapp.itlTarget.Set(d.Seconds()) }

// InitReloads creates a series with value 0 for every class and outcome.
func (m *Metrics) InitReloads(classes, outcomes []string) {
	for _, c := range classes {
		for _, o := range outcomes {
			m.vapp.reloads.WithLabelValues(c, o)
		}
	}
}

// CountReload counts a reload.
func (m *Metrics) CountReload(class, outcome string, at time.Time) {
	m.vapp.reloads.WithLabelValues(class, outcome).Inc()
	m.vapp.lastReload.Set(float64(at.UnixMilli()) / 1000)
}
