package plan

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"vapp.dev/schema"
)

// Goal is the question of WhyNot: Seqs sequences of Tokens tokens each, prompt and reply, with Images
// images in each that take ImageTokens tokens each.
type Goal struct {
	Seqs   int
	Tokens int // 0: those of the images alone
	Images int
	// ImageTokens 0 is the largest image that the profile plans.
	ImageTokens int
}

// imageTokens returns the tokens that the goal's images take, with those around them.
func (g Goal) imageTokens() int { return g.Images * (g.ImageTokens + imageMarkers) }

// String returns the goal as ParseGoal reads it: "16x32768 with 8 images of 1120".
func (g Goal) String() string {
	images := fmt.Sprintf("%s of %d", numberOf(g.Images, "image"), g.ImageTokens)
	if g.ImageTokens == 0 {
		images = numberOf(g.Images, "image")
	}
	switch {
	case g.Images == 0:
		return fmt.Sprintf("%dx%d", g.Seqs, g.Tokens)
	case g.Tokens == 0:
		return images
	}
	return fmt.Sprintf("%dx%d with %s", g.Seqs, g.Tokens, images)
}

// imageMarkers is how many tokens stand around those of an image: its begin and its end.
const imageMarkers = 2

// imagesOf matches "16x32K with 8 images of 1120".
var imagesOf = regexp.MustCompile(`^(?:(.*) with )?([0-9]+) images?(?: of (.*))?$`)

// mostImages bounds the images of a goal; multimodal.limits.image has the same bound.
const mostImages = 1024

// ParseGoal parses "16x32K" as 16 sequences of 32,768 tokens. A length alone means one sequence. "8
// images of 1120" is one sequence of nothing but 8 images of 1,120 tokens each; "16x32K with 8 images of
// 1120" is 16 sequences of 32,768 tokens in all, with 8 such images in each. Without "of 1120" the images
// are as large as the profile plans.
func ParseGoal(s string) (g Goal, err error) {
	g.Seqs = 1
	m := imagesOf.FindStringSubmatch(s)
	if m == nil {
		g.Seqs, g.Tokens, err = parseLengths(s, s)
		return g, err
	}
	if g.Images, err = strconv.Atoi(m[2]); err != nil || g.Images < 1 || g.Images > mostImages {
		return Goal{}, fmt.Errorf("%q: %s is no number of images from 1 to %d; write it as 8 images of 1120", s, m[2], mostImages)
	}
	if m[3] != "" || strings.HasSuffix(s, " of ") {
		n, err := schema.ParseCount(m[3])
		if err != nil || n < 1 || n > 1<<20 {
			return Goal{}, fmt.Errorf("%q: %q is no number of tokens of an image; write it as 8 images of 1120", s, m[3])
		}
		g.ImageTokens = int(n)
	}
	if strings.Contains(s, " with ") {
		if g.Seqs, g.Tokens, err = parseLengths(s, m[1]); err != nil {
			return Goal{}, err
		}
	}
	return g, nil
}

// parseLengths parses 16x32K, a part of s.
func parseLengths(s, part string) (seqs, tokens int, err error) {
	seqs = 1
	length := part
	if n, of, ok := strings.Cut(part, "x"); ok {
		if seqs, err = strconv.Atoi(n); err != nil || seqs < 1 || seqs > 1<<20 {
			return 0, 0, fmt.Errorf("%q: %q is no number of sequences; write it as 16x32K", s, n)
		}
		length = of
	}
	c, err := schema.ParseCount(length)
	if err != nil || c < 1 || c > 1<<30 {
		return 0, 0, fmt.Errorf("%q: %q is no length in tokens; write it as 16x32K", s, length)
	}
	return seqs, int(c), nil
}
