package bench

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vapp.dev/tools/bench/workload"
)

// TestImages checks that images reach the server as data: URLs behind the text.
func TestImages(t *testing.T) {
	r := serving(t, 3, func(w http.ResponseWriter, q *http.Request) {
		var body struct {
			Messages []struct {
				Content []struct {
					Type, Text string
					Image      struct{ URL string } `json:"image_url"`
				}
			}
		}
		if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		parts := body.Messages[0].Content
		if len(parts) != 2 || parts[0].Text != "look" || parts[1].Type != "image_url" || !strings.HasPrefix(parts[1].Image.URL, "data:image/jpeg;base64,/9j/") {
			t.Errorf("%+v", parts)
		}
		io.WriteString(w, record("a")+usage3+done)
	}).withOutput(3)
	r.Params.Backend = Chat
	for i := range r.Requests {
		r.Requests[i].Prompt, r.Requests[i].Images = "look", []workload.Image{{Width: 8, Height: 8}}
	}
	if got, err := r.Serve(t.Context()); err != nil || got.Completed != 3 {
		t.Fatalf("%d completed, %v", got.Completed, err)
	}
}

func TestBuckets(t *testing.T) {
	want := []workload.Bucket{{Height: 256, Width: 256, Frames: 1, Weight: 0.5}, {Height: 720, Width: 1280, Frames: 16}}
	for _, text := range []string{
		`{(256, 256, 1): 0.5, (720, 1280, 16): 0.0}`, `{"(256,256,1)":5e-1,'(720, 1280, 16)' : 0,}`, " { (256, 256, 1,):.5 ,(720,1280,16):0} ",
	} {
		if got, err := buckets(text); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		`(256, 256, 1): 1`: "not in braces", `{(256, 256): 1}`: "is not (height, width, frames)", `{(1, 1, 1): x}`: "is not a number",
		`{"(1, 1, 1): 1}`: "is not (height", `{(1, 1, 1): 1 2}`: "is not (height", `{(1, 1, 99999999999999999999): 1}`: "is too large",
	} {
		if got, err := buckets(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %s", text, got, err, want)
		}
	}
}

// TestImageOptions checks refusals of the options of random-mm.
func TestImageOptions(t *testing.T) {
	images := func(limits, buckets string) *Images { return &Images{Items: 1, Limits: limits, Buckets: buckets} }
	for want, d := range map[string]Dataset{
		"use vapp bench serve":            {},
		"--random-mm-limit-mm-per-prompt": {Images: images("3", DefaultImageBuckets)},
		"--random-mm-bucket-config":       {Images: images(DefaultImageLimits, "{")},
		"--dataset-name random-mm: size (4, 4, 2) with probability 1: it is a video": {Images: images(DefaultImageLimits, "{(4, 4, 2): 1}")},
	} {
		d.Name = "random-mm"
		var option *OptionError
		if err := d.check(); !errors.As(err, &option) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	d := Dataset{Name: "random-mm", Images: images(DefaultImageLimits, DefaultImageBuckets)}
	if err := d.check(); err != nil {
		t.Error(err)
	}
}

func FuzzBuckets(f *testing.F) {
	f.Add(DefaultImageBuckets)
	f.Add(`{"(1, 2, 3)": 1e9}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := buckets(text)
		if err != nil && got != nil {
			t.Errorf("%v with %v", got, err)
		}
	})
}
