package checkpoint

// ToyGGUF returns a small file with a tokenizer of that kind.
func ToyGGUF(kind string) []byte { return newToy(kind).bytes() }
