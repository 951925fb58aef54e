package mutate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Judge returns an error if a reply is wrong. A reply may be a success, a client error, or 501
// for an unavailable feature. An error must have the error object with its four keys, or
// Anthropic's form on its routes.
func Judge(r Request, status int, media string, body []byte) error {
	switch {
	case status == 501:
	case status >= 500:
		return fmt.Errorf("status %d: %.300s", status, body)
	case status < 200 || status >= 300 && status < 400:
		return fmt.Errorf("status %d", status)
	case status < 300 && r.Method == "HEAD":
		return nil
	case status < 300:
		return judgeReply(media, body)
	}
	if r.Method == "HEAD" || r.Method == "OPTIONS" {
		return nil
	}
	if path, _, _ := strings.Cut(r.Path, "?"); path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/") {
		return judgeMessages(body)
	}
	return judgeError(status, body)
}

func judgeReply(media string, body []byte) error {
	switch {
	case strings.HasPrefix(media, "application/json"):
		if !json.Valid(body) {
			return fmt.Errorf("the reply is not JSON: %.200s", body)
		}
	case strings.HasPrefix(media, "text/event-stream"):
		for line := range bytes.Lines(body) {
			data, is := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
			if is && string(data) != "[DONE]" && !json.Valid(data) {
				return fmt.Errorf("a record is not JSON: %.200s", data)
			}
			if bytes.Contains(data, []byte(`"code":500`)) || bytes.Contains(data, []byte(`"api_error"`)) {
				return fmt.Errorf("an error of the server in the stream: %.300s", data)
			}
		}
	}
	return nil
}

func judgeError(status int, body []byte) error {
	var whole map[string]json.RawMessage
	if json.Unmarshal(body, &whole) != nil {
		return fmt.Errorf("status %d: no JSON object: %.200s", status, body)
	}
	var e map[string]any
	if len(whole) != 1 || json.Unmarshal(whole["error"], &e) != nil {
		return fmt.Errorf("status %d: no error object: %.200s", status, body)
	}
	message, _ := e["message"].(string)
	kind, _ := e["type"].(string)
	code, isCode := e["code"].(float64)
	param, has := e["param"]
	_, named := param.(string)
	if len(e) != 4 || message == "" || kind == "" || !isCode || int(code) != status || !has || param != nil && !named {
		return fmt.Errorf("status %d: not the four keys: %.300s", status, body)
	}
	if strings.Contains(message, "goroutine ") || strings.Contains(message, "runtime error") {
		return fmt.Errorf("the message exposes server internals: %s", message)
	}
	return nil
}

func judgeMessages(body []byte) error {
	var e struct {
		Type  string
		Error struct{ Type, Message string }
	}
	if json.Unmarshal(body, &e) != nil || e.Type != "error" || e.Error.Type == "" || e.Error.Message == "" {
		return fmt.Errorf("not Anthropic's error: %.300s", body)
	}
	return nil
}
