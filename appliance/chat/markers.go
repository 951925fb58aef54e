package chat

import "vapp.dev/appliance/chat/dialect"

// markerIDs returns the markers of all dialects that the vocabulary has as one token, by id
// and by text.
func markerIDs(v Vocabulary) (ids map[int32]string, markers map[string]int32) {
	ids, markers = map[int32]string{}, map[string]int32{}
	for _, m := range dialect.Markers() {
		markers[m] = -1
	}
	for id := range int32(v.VocabSize()) {
		text := string(v.TokenBytes(id))
		if first, is := markers[text]; is && first < 0 {
			ids[id], markers[text] = text, id
		}
	}
	for m, id := range markers {
		if id < 0 {
			delete(markers, m)
		}
	}
	return ids, markers
}

// specials returns the markers that are special tokens. Grammars name these by their ids,
// because no text of a grammar matches a special token.
func specials(v Vocabulary, markers map[string]int32) map[string]int32 {
	out := map[string]int32{}
	if s, is := v.(interface{ IsSpecial(id int32) bool }); is {
		for m, id := range markers {
			if s.IsSpecial(id) {
				out[m] = id
			}
		}
	}
	return out
}
