// Package page is the page at the root of a server: a chat, and beside it the plan
// and what the server does. It is one document with its style and script in it,
// that loads nothing but the server's own API.
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

// document is frame with the style and the scripts in it.
func document() string {
	return strings.NewReplacer("/*STYLE*/", style, "/*SCRIPT*/", script()).Replace(frame)
}

// script is one function, so that the page has no globals.
func script() string { return "'use strict';\n(() => {\n" + talk + state + "})();\n" }

// policy lets the browser run this style and this script, ask this server, and do
// nothing else.
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

// Handler serves the page. It holds nothing that is secret: what it shows it asks
// for with the reader's key.
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
		// An error here is a client that has gone.
		_, _ = w.Write([]byte(text))
	})
}
