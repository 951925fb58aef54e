package fetch

import (
	"encoding/base64"
	"strings"
)

// IsData returns whether a URL is a data: URL.
func IsData(url string) bool { return len(url) >= 5 && strings.EqualFold(url[:5], "data:") }

// SplitData returns the media type of a data: URL, without its parameters, and its base64 text.
// The error is an *Error.
func SplitData(url string) (mediaType, text string, err error) {
	head, text, has := strings.Cut(url[len("data:"):], ",")
	if !has {
		return "", "", refused(nil, "Invalid data URL '%s': missing ',' separator.", printable(url))
	}
	// Spaces belong to the form: "base64 " is no base64, as in vLLM.
	at := strings.LastIndexByte(head, ';')
	if at < 0 || head[at+1:] != "base64" {
		return "", "", &Error{Reason: Unsupported, Message: "Only base64 data URLs are supported for now."}
	}
	mediaType, _, _ = strings.Cut(head[:at], ";")
	return mediaType, text, nil
}

// printable returns the start of a URL on one line.
func printable(url string) string {
	r := []rune(url)
	if len(r) > 32 {
		r = r[:32]
	}
	for i, c := range r {
		if c < ' ' || c == 0x7f || c == '\'' || c == 0x2028 || c == 0x2029 {
			r[i] = '?'
		}
	}
	return string(r)
}

// Base64 returns what a text of base64 has, as vLLM reads it: the standard alphabet with its
// padding and nothing else, neither spaces nor line ends. reserve is called before memory is
// taken. The error is an *Error, or that of reserve.
func Base64(text string, reserve Reserve) ([]byte, error) {
	if err := reserve(int64(base64.StdEncoding.DecodedLen(len(text)))); err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, refused(err, "Non-base64 digit found, or incorrect padding: %v", err)
	}
	if strings.ContainsAny(text, "\r\n") { // encoding/base64 leaves them out
		return nil, refused(nil, "Non-base64 digit found: the data has line ends")
	}
	return data, nil
}

// List returns the items of a data: URL whose base64 texts are joined by commas, the first most of
// them: vLLM's data:video/jpeg. Errors are as those of Get.
func (f *Fetcher) List(url string, most int, reserve Reserve) ([][]byte, error) {
	_, text, err := SplitData(url)
	if err != nil {
		return nil, err
	}
	texts := strings.SplitN(text, ",", most+1)
	texts = texts[:min(len(texts), most)]
	out, n := make([][]byte, len(texts)), int64(0)
	for _, t := range texts {
		n += int64(base64.StdEncoding.DecodedLen(len(t)))
	}
	if f.over(n) {
		return nil, f.tooLarge(n)
	}
	for i, t := range texts {
		if out[i], err = Base64(t, reserve); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// data returns the item of a data: URL.
func (f *Fetcher) data(url string, reserve Reserve) (Item, error) {
	mediaType, text, err := SplitData(url)
	if err != nil {
		return Item{}, err
	}
	if n := int64(base64.StdEncoding.DecodedLen(len(text))); f.over(n) {
		return Item{}, f.tooLarge(n)
	}
	data, err := Base64(text, reserve)
	return Item{Data: data, Type: mediaType}, err
}
