package chat

import (
	"context"

	"vapp.dev/engine"
	"vapp.dev/engine/fairqueue"
)

// WithClient returns a context that assigns requests to a client. Where requests wait for a
// child process or for the grammar compiler, clients take turns.
func WithClient(ctx context.Context, client string) context.Context {
	return fairqueue.WithClient(ctx, client)
}

// Client returns the client of a context, "" if none was set.
func Client(ctx context.Context) string { return fairqueue.Client(ctx) }

// Detach returns base with the client and the engine.Observer of ctx, for a reply that is made after
// the request with ctx has ended.
func Detach(base, ctx context.Context) context.Context {
	base = WithClient(base, Client(ctx))
	if o := engine.ObserverOf(ctx); o != nil {
		base = engine.WithObserver(base, o)
	}
	return base
}
