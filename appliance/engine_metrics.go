package appliance

import (
	"vapp.dev/appliance/metrics"
	"vapp.dev/appliance/traces"
	"vapp.dev/engine/backend"
	"vapp.dev/schema"
)

// metricsConfig describes the engine of p for the metrics.
func (a *Appliance) metricsConfig(p *Prepared) metrics.Config {
	o := p.Plan.Options
	swap := p.Ledger().Bytes(backend.Swap.String())
	var events func() metrics.KVEvents
	if a.events != nil {
		events = a.eventFigures
	}
	m := a.cfg.member
	return metrics.Config{
		Together:    m != nil,
		First:       m != nil && m.index == 0,
		KVEvents:    events,
		Traces:      a.traceFigures(),
		TraceID:     traces.TraceID,
		Model:       servedNames(p.Profile)[0],
		MaxModelLen: o.MaxModelLen,
		Version:     a.cfg.Version,
		Compat:      p.Profile.Serve.MetricsCompat,
		Drafts:      o.Drafts,
		Cache: metrics.CacheConfig{
			BlockSize: o.BlockSize, Pages: p.Plan.Capacity.Classes[0].Pages, Dtype: p.Profile.Memory.KVCacheDtype, PrefixCaching: o.PrefixCaching,
			Utilization: p.Profile.Memory.Utilization, Bytes: int64(p.Profile.Memory.KVCache),
			SwapBytes: swap, SwapPages: p.swapPages(swap),
		},
	}
}

func (a *Appliance) newMetrics() *metrics.Metrics {
	a.metrics = metrics.New(a.metricsConfig(a.first))
	a.showLedger(a.first)
	a.metrics.InitReloads(
		[]string{"none", string(schema.Live), string(schema.Drain), string(schema.Structural), string(schema.Restart)},
		[]string{string(Applied), string(Pending), string(Reported), string(Withdrawn), string(Rejected), string(Unchanged)},
	)
	return a.metrics
}

// showLedger shows the plan of p in the metrics.
func (a *Appliance) showLedger(p *Prepared) {
	for _, i := range p.Ledger() {
		a.metrics.SetPlan(i.Name, i.Bytes)
	}
	a.metrics.SetPlannedProcess(p.Plan.ProcessBytes(p.Ledger()))
}
