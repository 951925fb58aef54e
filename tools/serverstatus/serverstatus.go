// Package serverstatus reads the report of a running server, waits until it is ready, and says by an exit
// code in which state it is. It must not print; it does not know the profile. Start reading at Get, Wait and
// Code.
package serverstatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"vapp.dev/appliance/drift"
	"vapp.dev/tools/console"
)

// Exit codes of vapp status. 1 is an error and 2 an invalid command line, as with every command.
const (
	Ready       = 0 // and without drift
	Drifting    = 3 // ready, with drift
	Loading     = 4
	Ending      = 5 // draining or failed
	Unreachable = 6
)

// Code returns the exit code of a report.
func Code(r drift.Report) int {
	switch r.Phase {
	case "ready", "unloaded": // the next request loads an unloaded model
		if r.Drift {
			return Drifting
		}
		return Ready
	case "loading":
		return Loading
	}
	return Ending
}

// Lost reports whether an error means that there is no server at the address.
func Lost(err error) bool {
	var lost *console.LostError
	return errors.As(err, &lost)
}

// answerTime is the time in which a server must answer.
const answerTime = 15 * time.Second

// Get returns the report of a server; profile names one of several that share an address, "": there is one. The
// error is a *console.LostError without a connection.
func Get(ctx context.Context, c *console.Client, profile string) (drift.Report, error) {
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	var r drift.Report
	path := "/admin/drift"
	if profile != "" {
		path += "?profile=" + url.QueryEscape(profile)
	}
	text, err := c.Get(ctx, path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil || r.Phase == "" {
		return r, fmt.Errorf("%s/admin/drift is no report of vapp: give the address of a vapp server", c.URL())
	}
	return r, nil
}

// Wait calls Get each time that next returns true until the server has loaded its model. It returns the last
// answer: a report of a server that does not load, or what Get returned when next returned false. A server that
// does not answer yet is asked again; any other error ends the wait.
func Wait(ctx context.Context, c *console.Client, profile string, next func() bool) (drift.Report, error) {
	for {
		r, err := Get(ctx, c, profile)
		if err != nil && !Lost(err) || err == nil && r.Phase != "loading" || !next() {
			return r, err
		}
	}
}

// Every returns a function for Wait that waits for an interval. It returns false when ctx ends or the limit
// has passed.
func Every(ctx context.Context, interval, limit time.Duration) (next func() bool, stop func()) {
	tick, end := time.NewTicker(interval), time.NewTimer(limit)
	next = func() bool {
		select {
		case <-ctx.Done():
			return false
		case <-end.C:
			return false
		case <-tick.C:
			return true
		}
	}
	return next, func() { tick.Stop(); end.Stop() }
}
