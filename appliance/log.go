package appliance

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
)

// newLog returns a logger, and a function that sets its format, text or json.
func newLog(w io.Writer, format string, level *slog.LevelVar) (*slog.Logger, func(format string)) {
	o := &slog.HandlerOptions{Level: level}
	h := formats{text: slog.NewTextHandler(w, o), json: slog.NewJSONHandler(w, o), isJSON: &atomic.Bool{}}
	set := func(format string) { h.isJSON.Store(format == "json") }
	set(format)
	return slog.New(h), set
}

// formats is a handler whose format can change.
type formats struct {
	text, json slog.Handler
	isJSON     *atomic.Bool
}

func (f formats) now() slog.Handler {
	if f.isJSON.Load() {
		return f.json
	}
	return f.text
}

// Enabled implements slog.Handler.
func (f formats) Enabled(ctx context.Context, l slog.Level) bool { return f.text.Enabled(ctx, l) }

// Handle implements slog.Handler.
func (f formats) Handle(ctx context.Context, r slog.Record) error { return f.now().Handle(ctx, r) }

// WithAttrs implements slog.Handler.
func (f formats) WithAttrs(list []slog.Attr) slog.Handler {
	return formats{f.text.WithAttrs(list), f.json.WithAttrs(list), f.isJSON}
}

// WithGroup implements slog.Handler.
func (f formats) WithGroup(name string) slog.Handler {
	return formats{f.text.WithGroup(name), f.json.WithGroup(name), f.isJSON}
}

// levels maps the values of log.level.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}
