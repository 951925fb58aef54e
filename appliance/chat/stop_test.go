package chat

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// cutAt computes the scanner's result from its definition: the text ends at the first position
// where a stop string ends; of several, the first in the list counts.
func cutAt(text string, stops []string, include bool) (out string, hit int) {
	for end := 1; end <= len(text); end++ {
		for i, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				if include {
					return text[:end], i
				}
				return text[:end-len(s)], i
			}
		}
	}
	return text, -1
}

// pieces splits text at the positions of the set bits of cuts.
func pieces(text string, cuts uint64) []string {
	var out []string
	start := 0
	for i := 1; i < len(text); i++ {
		if cuts&(1<<((i-1)%64)) != 0 {
			out = append(out, text[start:i])
			start = i
		}
	}
	return append(out, text[start:])
}

// scan feeds pieces and checks that no returned text can belong to a stop string, and that no
// text is held back without need.
func scan(t *testing.T, list, stops []string, include bool) (string, int) {
	t.Helper()
	s := newScanner(stops, include)
	var out, in string
	for _, p := range list {
		text, stopped := s.push(p, true)
		out, in = out+text, in+p
		if stopped {
			return out, s.hit
		}
		if !strings.HasPrefix(in, out) {
			t.Fatalf("stops %q, pieces %q: gave out %q of %q", stops, list, out, in)
		}
		held := in[len(out):]
		if need := longestPrefix(in, stops); !include && len(held) != need {
			t.Fatalf("stops %q, pieces %q: holds back %q, needs %d bytes", stops, list, held, need)
		} else if include && held != "" {
			t.Fatalf("stops %q: include holds back %q", stops, held)
		}
	}
	return out + s.flush(), s.hit
}

// longestPrefix returns the length of the longest suffix of text that is a prefix of a stop
// string.
func longestPrefix(text string, stops []string) int {
	best := 0
	for _, s := range stops {
		for n := range len(s) {
			if strings.HasSuffix(text, s[:n]) {
				best = max(best, n)
			}
		}
	}
	return best
}

func checkScan(t *testing.T, text string, stops []string, cuts uint64, include bool) {
	t.Helper()
	wantText, wantHit := cutAt(text, stops, include)
	gotText, gotHit := scan(t, pieces(text, cuts), stops, include)
	if gotText != wantText || gotHit != wantHit {
		t.Fatalf("text %q stops %q cuts %b include %v: got %q, stop %d; want %q, stop %d",
			text, stops, cuts, include, gotText, gotHit, wantText, wantHit)
	}
}

// TestScannerEveryChunking splits texts in every way. Their alphabet is small, so that stop
// strings overlap themselves and each other.
func TestScannerEveryChunking(t *testing.T) {
	lists := [][]string{
		{"a"}, {"ab"}, {"aa"}, {"aab"}, {"abab"}, {"ba", "ab"}, {"aba", "b"}, {"abb", "bb"}, {"b", "abb"},
		{"aabaab", "baa"}, {"bbb", "bb"}, {"abc"}, {},
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, stops := range lists {
		for range 40 {
			text := make([]byte, 9)
			for i := range text {
				text[i] = "aab"[r.IntN(3)]
			}
			for cuts := range uint64(1) << (len(text) - 1) {
				checkScan(t, string(text), stops, cuts, false)
			}
			checkScan(t, string(text), stops, r.Uint64(), true)
			checkScan(t, string(text), stops, 0, true)
		}
	}
}

func TestScannerUnarmed(t *testing.T) {
	s := newScanner([]string{"END"}, false)
	out, stopped := s.push("xENDyE", false)
	if out != "xENDy" || stopped {
		t.Fatalf("got %q, %v; an unarmed stop string must pass", out, stopped)
	}
	if out, stopped = s.push("ND", true); out != "" || !stopped {
		t.Fatalf("got %q, %v; a stop string that ends when armed counts", out, stopped)
	}
	s = newScanner([]string{"abab"}, false)
	if out, _ = s.push("abab", false); out != "ab" {
		t.Fatalf("got %q; the border of an unarmed stop string may go on", out)
	}
	if out, stopped = s.push("ab", true); out != "" || !stopped {
		t.Fatalf("got %q, %v; a stop string that began when unarmed counts", out, stopped)
	}
}

func TestScannerUTF8(t *testing.T) {
	s := newScanner([]string{"über", "日本"}, false)
	var out strings.Builder
	for _, p := range []string{"ü", "ü", "日", "月"} {
		text, _ := s.push(p, true)
		out.WriteString(text)
		if !strings.HasPrefix("üü日月", out.String()) {
			t.Fatalf("half a character: %q", out.String())
		}
	}
	out.WriteString(s.flush())
	if out.String() != "üü日月" {
		t.Fatalf("got %q", out.String())
	}
}

func FuzzStopScanner(f *testing.F) {
	f.Add("hello END of it", "END\nof", uint64(0x5555), false)
	f.Add("aaaaab", "aab\naaa", uint64(7), true)
	f.Add("日本語", "本", uint64(0xff), false)
	f.Fuzz(func(t *testing.T, text, list string, cuts uint64, include bool) {
		var stops []string
		for _, s := range strings.Split(list, "\n") {
			if s != "" && len(stops) < 8 {
				stops = append(stops, s)
			}
		}
		if len(text) > 300 || len(list) > 200 {
			return
		}
		checkScan(t, text, stops, cuts, include)
	})
}
