// Command flood posts its input to a URL from many clients at once and prints the number of
// replies by status: `flood URL CLIENTS < body`. TestBodies runs it as a separate process.
// It must not import vapp. Start reading at main.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// clientTime is the time limit of all clients of one body.
const clientTime = 40 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want URL CLIENTS, got %q", args)
	}
	clients, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	fmt.Print(load(args[0], body, clients))
	return nil
}

// load returns the number of replies by status.
func load(url string, body []byte, clients int) string {
	var mu sync.Mutex
	count := map[string]int{}
	transport := &http.Transport{}
	ctx, cancel := context.WithTimeout(context.Background(), clientTime)
	defer cancel()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			what := "no reply"
			r, err := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader(body))
			if err == nil {
				r.Header.Set("Content-Type", "application/json")
				var reply *http.Response
				if reply, err = transport.RoundTrip(r); err == nil {
					_, _ = io.Copy(io.Discard, reply.Body)
					reply.Body.Close()
					what = strconv.Itoa(reply.StatusCode)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			count[what]++
		})
	}
	wg.Wait()
	var list []string
	for _, what := range slices.Sorted(maps.Keys(count)) {
		list = append(list, fmt.Sprintf("%d × %s", count[what], what))
	}
	return strings.Join(list, ", ")
}
