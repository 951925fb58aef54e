package chat

import (
	"context"

	"vapp.dev/engine/fairqueue"
)

// WithClient returns a context whose requests are that client's. Clients take turns where
// the work of requests waits for a child process or for the compiler of grammars.
func WithClient(ctx context.Context, client string) context.Context {
	return fairqueue.WithClient(ctx, client)
}

// Client returns the client of a context, "" where none was set.
func Client(ctx context.Context) string { return fairqueue.Client(ctx) }
