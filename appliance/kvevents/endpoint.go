package kvevents

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// EndpointError reports an endpoint that cannot be opened.
type EndpointError struct {
	Field    string // endpoint or replayEndpoint
	Endpoint string
	Err      error
}

func (e *EndpointError) Error() string { return fmt.Sprintf("%s: %v", e.Endpoint, e.Err) }

// Unwrap returns the cause.
func (e *EndpointError) Unwrap() error { return e.Err }

// Endpoint is a parsed endpoint.
type Endpoint struct {
	Network, Address string // of package net
	Listen           bool   // else the PUB socket connects to it
}

// ParseEndpoint parses tcp://HOST:PORT or ipc://PATH. As in vLLM the PUB socket listens on an
// endpoint with the host * or an IPv6 address with ::, and on paths; to another host it connects.
// It also listens on 0.0.0.0, to which nothing can connect. With port 0 it
// listens on any free one.
func ParseEndpoint(text string) (Endpoint, error) {
	if path, ok := strings.CutPrefix(text, "ipc://"); ok && path != "" {
		return Endpoint{"unix", path, true}, nil
	}
	rest, ok := strings.CutPrefix(text, "tcp://")
	if !ok {
		return Endpoint{}, fmt.Errorf("want tcp://*:PORT, tcp://HOST:PORT or ipc://PATH")
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return Endpoint{}, fmt.Errorf("want tcp://*:PORT or tcp://HOST:PORT")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" {
		return Endpoint{}, fmt.Errorf("want a host and a port from 0 to 65535")
	}
	listen := host == "*" || host == "0.0.0.0" || strings.Contains(host, "::")
	if host == "*" {
		host = ""
	}
	return Endpoint{"tcp", net.JoinHostPort(host, port), listen}, nil
}
