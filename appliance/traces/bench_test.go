package traces

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"vapp.dev/appliance/traces/tracestest"
	"vapp.dev/engine"
	"vapp.dev/engine/sample"
)

// BenchmarkRequest measures all that a recorded request costs, its export over gRPC and the collector's
// side included, and what the engine's loop has of it.
func BenchmarkRequest(b *testing.B) {
	collector := tracestest.New(b)
	tracer, err := Open(Config{Endpoint: collector.GRPC, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	header, now := parent("01"), time.Now()
	stats := engine.RequestStats{ID: "cmpl-1", N: 1, Finish: engine.FinishStop, Arrival: now, Queued: now, Scheduled: now, FirstToken: now, LastToken: now, Finished: now}
	var loop time.Duration
	for b.Loop() {
		ctx, _, end := tracer.Start(context.Background(), header, "/v1/completions")
		o := engine.ObserverOf(ctx)
		o.Submitted(engine.Request{ID: "cmpl-1", N: 1, Params: sample.Default()})
		at := time.Now()
		o.Ended(stats)
		loop += time.Since(at)
		end(200, "")
		for tracer.spans.waiting.Load() > MaxQueue/2 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := tracer.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(loop.Nanoseconds())/float64(b.N), "loop-ns/op")
}
