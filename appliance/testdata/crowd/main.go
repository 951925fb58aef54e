// Command crowd streams chats from a server with many clients at once until it is
// killed: `crowd URL CLIENTS`. TestStreamingCost runs it as a separate process, so that
// the clients' CPU time does not count. It must not import vapp. Start reading at main.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: crowd URL CLIENTS")
		os.Exit(2)
	}
	clients, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "crowd:", err)
		os.Exit(2)
	}
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			if err := stream(os.Args[1], i); err != nil {
				fmt.Fprintf(os.Stderr, "crowd: client %d: %v\n", i, err)
			}
		})
	}
	wg.Wait()
}

// stream sends one chat after the other and reads the replies. It returns the first error.
func stream(url string, i int) error {
	body := fmt.Sprintf(`{"stream":true,"max_tokens":400,"ignore_eos":true,"messages":[{"role":"user","content":"Tell me about %d."}]}`, i)
	for {
		r, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
}
