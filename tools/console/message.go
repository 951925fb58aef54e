package console

import (
	"encoding/json"
	"fmt"
)

// Message is a message of a chat.
type Message struct {
	Role    string
	Content string   // text
	Images  []string // URLs; they come before the text
}

// part is a part of a message's content in the OpenAI API.
type part struct {
	Type string    `json:"type"`
	Text string    `json:"text,omitempty"`
	URL  *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

// MarshalJSON returns the message in the API's form. Its content is a string unless it has images.
func (m Message) MarshalJSON() ([]byte, error) {
	var content any = m.Content
	if len(m.Images) > 0 {
		var parts []part
		for _, url := range m.Images {
			parts = append(parts, part{Type: "image_url", URL: &imageURL{url}})
		}
		if m.Content != "" {
			parts = append(parts, part{Type: "text", Text: m.Content})
		}
		content = parts
	}
	return json.Marshal(struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	}{m.Role, content})
}

// UnmarshalJSON reads a message of the API whose content is a string, or images and texts.
func (m *Message) UnmarshalJSON(b []byte) error {
	var raw struct {
		Role    string
		Content json.RawMessage
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*m = Message{Role: raw.Role}
	if len(raw.Content) == 0 || json.Unmarshal(raw.Content, &m.Content) == nil {
		return nil
	}
	var parts []part
	if err := json.Unmarshal(raw.Content, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		switch {
		case p.Type == "text":
			m.Content += p.Text
		case p.Type == "image_url" && p.URL != nil && p.URL.URL != "":
			m.Images = append(m.Images, p.URL.URL)
		default:
			return fmt.Errorf("a part of type %q", p.Type)
		}
	}
	return nil
}
