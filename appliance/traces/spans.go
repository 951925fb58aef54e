package traces

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// spans is the SDK's batch processor with a bound in front of it. The SDK's own queue drops spans
// without a word; this bound is reached first, and counts them.
type spans struct {
	sdk.SpanProcessor // batches and exports
	exporter          sdk.SpanExporter
	max               int64
	log               *slog.Logger

	waiting                atomic.Int64 // spans that ended and are neither exported nor dropped
	exported, full, failed atomic.Uint64

	mu     sync.Mutex
	losing bool   // spans are being dropped, and the log says so
	before uint64 // spans dropped before that
}

func newSpans(e sdk.SpanExporter, max int, log *slog.Logger) *spans {
	s := &spans{exporter: e, max: int64(max), log: log}
	s.SpanProcessor = sdk.NewBatchSpanProcessor(counted{s}, sdk.WithMaxQueueSize(max), sdk.WithMaxExportBatchSize(min(sdk.DefaultMaxExportBatchSize, max)))
	return s
}

// OnEnd queues a span. It never blocks.
func (s *spans) OnEnd(span sdk.ReadOnlySpan) {
	if s.waiting.Add(1) > s.max {
		s.waiting.Add(-1)
		s.lost(&s.full, 1, "the collector takes spans too slowly", nil)
		return
	}
	s.SpanProcessor.OnEnd(span)
}

// lost counts n dropped spans, and logs the first of several losses. It logs beside the caller, which
// may be the engine's loop.
func (s *spans) lost(counter *atomic.Uint64, n int, why string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counter.Add(uint64(n))
	if s.losing {
		return
	}
	s.losing, s.before = true, s.full.Load()+s.failed.Load()-uint64(n)
	args := []any{}
	if err != nil {
		args = append(args, "error", err.Error())
	}
	go s.log.Warn("traces: "+why+"; spans are dropped until it takes them (vapp_trace_spans_dropped_total counts)", args...)
}

// delivered logs the end of the losses, when the collector has taken a batch and the queue has
// room again.
func (s *spans) delivered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.losing || s.waiting.Load() > s.max/2 {
		return
	}
	s.losing = false
	s.log.Info("traces: the collector takes spans again", "dropped", s.full.Load()+s.failed.Load()-s.before)
}

// counted counts what its exporter exports. It returns no error, which the SDK would print beside
// the log.
type counted struct{ s *spans }

// ExportSpans implements sdk.SpanExporter.
func (c counted) ExportSpans(ctx context.Context, batch []sdk.ReadOnlySpan) error {
	err := c.s.exporter.ExportSpans(ctx, batch)
	c.s.waiting.Add(-int64(len(batch)))
	if err != nil {
		c.s.lost(&c.s.failed, len(batch), "the collector does not take spans", err)
		return nil
	}
	c.s.exported.Add(uint64(len(batch)))
	c.s.delivered()
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (c counted) Shutdown(ctx context.Context) error { return c.s.exporter.Shutdown(ctx) }
