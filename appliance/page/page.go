// Package page serves the HTML page at the root of a server: a chat, the plan, and the
// server's current figures. The page is one document with embedded style and script; it
// loads nothing except the server's API. The package must not import other packages of
// vapp. Start reading at Handler; talk.js is the chat, state.js the server's figures.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
)

var (
	//go:embed page.html
	frame string
	//go:embed style.css
	style string
	//go:embed talk.js
	talk string
	//go:embed state.js
	state string
)

// document returns frame with the style and the scripts.
func document() string {
	return strings.NewReplacer("/*STYLE*/", style, "/*SCRIPT*/", script()).Replace(frame)
}

// script returns the scripts within one function, so that the page has no globals.
func script() string { return "'use strict';\n(() => {\n" + talk + state + "})();\n" }

// policy returns the Content-Security-Policy, which allows this style, this script, and
// requests to this server only.
func policy() string {
	return strings.Join([]string{
		"default-src 'none'", "script-src " + digest(script()), "style-src " + digest(style), "connect-src 'self'",
		"img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}, "; ")
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Handler returns the handler of the page. The page contains no secrets: its script
// requests the data with the key that the user enters.
func Handler() http.Handler {
	text, allowed := document(), policy()
	sum := sha256.Sum256([]byte(text))
	tag := strconv.Quote(base64.RawURLEncoding.EncodeToString(sum[:12]))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", allowed)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		// An error means that the client has disconnected.
		_, _ = w.Write([]byte(text))
	})
}
