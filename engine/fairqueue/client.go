package fairqueue

import "context"

type clientKey struct{}

// WithClient returns a context whose jobs belong to that client.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// Client returns the client of a context, "" where none was set.
func Client(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}
