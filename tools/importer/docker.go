package importer

import (
	"path"
	"slices"
	"strings"
)

// Flags of docker run (podman, nerdctl) without a value; all others have one.
var dockerAlone = []string{
	"--rm", "--detach", "--interactive", "--tty", "--privileged", "--init", "--read-only", "--publish-all", "--no-healthcheck",
	"--oom-kill-disable", "--sig-proxy", "--disable-content-trust", "--quiet", "--replace", "--tls-verify", "--no-hosts", "--rmi", "--env-host",
}

// Short flags of docker run with a value.
const dockerShort = "acehlmpuvw"

// indexOfDocker returns the index after "docker run", or -1.
func indexOfDocker(words []word) int {
	for i, w := range words {
		if !slices.Contains([]string{"docker", "podman", "nerdctl"}, path.Base(w.text)) {
			continue
		}
		for j := i + 1; j < len(words); j++ {
			switch {
			case words[j].text == "run":
				return j + 1
			case words[j].text != "container" && !strings.HasPrefix(words[j].text, "-"):
				return -1
			}
		}
	}
	return -1
}

// dockerCommand reads docker run: variables, published ports, the image, and the arguments of the
// image. at is the index of the first flag.
func dockerCommand(words []word, at, depth int) (*command, error) {
	c := &command{}
	var entry []word
	i := at
	for ; i < len(words) && strings.HasPrefix(words[i].text, "-"); i++ {
		name, value, n := dockerFlag(words[i:])
		if n == 2 && i+1 >= len(words) {
			return nil, failure(Missing, words[i].at, "", "docker's %s wants a value", name)
		}
		i += n - 1
		switch name {
		case "-e", "--env":
			if v, ok := assignment(value); ok {
				c.vars = append(c.vars, v)
			} else if nameLen(value.text) == len(value.text) { // the value is taken from docker's own environment
				c.vars = append(c.vars, variable{value.text, word{text: "$" + value.text, missing: "$" + value.text, at: value.at}})
			}
		case "--env-file":
			c.outside("--env-file " + short(value.text))
		case "-p", "--publish":
			c.publish(value.text)
		case "-v", "--volume":
			c.mount(value.text)
		case "--entrypoint":
			entry = []word{value}
		}
	}
	if i >= len(words) {
		return nil, failure(Missing, words[at-1].at, "name it behind docker's own flags", "docker run without an image")
	}
	got, err := commandOfImage(words[i].text, append(entry, words[i+1:]...), depth)
	if got == nil || err != nil {
		return nil, err
	}
	got.vars, got.notes, got.mounts = append(c.vars, got.vars...), c.notes, c.mounts
	return got, nil
}

// dockerFlag returns the name and the value of a flag, and the number of words that they take.
func dockerFlag(words []word) (name string, value word, n int) {
	w := words[0]
	if name, text, ok := strings.Cut(w.text, "="); ok && strings.HasPrefix(w.text, "--") {
		w.text = text
		return name, w, 1
	}
	if strings.HasPrefix(w.text, "--") {
		if slices.Contains(dockerAlone, w.text) {
			return w.text, word{}, 1
		}
	} else if letters := w.text[1:]; letters != "" {
		at := strings.IndexAny(letters, dockerShort)
		if at < 0 { // -it
			return w.text, word{}, 1
		}
		name = "-" + letters[at:at+1]
		if rest := letters[at+1:]; rest != "" { // -p8000:8000
			w.text = rest
			return name, w, 1
		}
		w.text = name
	}
	if len(words) > 1 {
		return w.text, words[1], 2
	}
	return w.text, word{}, 2
}

// publish notes a port with another number on the host: HOST:8080:8000.
func (c *command) publish(ports string) {
	parts := strings.Split(strings.TrimSuffix(ports, "/tcp"), ":")
	if n := len(parts); n >= 2 && parts[n-1] != parts[n-2] && !strings.ContainsAny(ports, "$ \n") {
		c.notes = append(c.notes, note{"port " + short(ports), no + "clients of the container used the outer port; serve.port is the inner one"})
	}
}

// outside notes variables that come from a file or another object.
func (c *command) outside(what string) {
	c.notes = append(c.notes, note{what, no + "the variables in it are not read here"})
}

// mount maps a folder of the host to a path in the container.
type mount struct{ outer, inner string }

// mount parses SOURCE:TARGET or SOURCE:TARGET:ro.
func (c *command) mount(volume string) {
	parts := strings.Split(volume, ":")
	if len(parts) >= 2 && parts[0] != "" && strings.HasPrefix(parts[1], "/") {
		c.mounts = append(c.mounts, mount{parts[0], strings.TrimSuffix(parts[1], "/")})
	}
}

// relocate adds remarks to paths that have another name outside the container.
func (d *draft) relocate(mounts []mount) {
	for _, field := range []string{"model.source", "parsers.chatTemplate", "multimodal.allowedPath"} {
		f, ok := d.fields[field]
		for _, m := range mounts {
			if path := f.by.value(); ok && (path == m.inner || strings.HasPrefix(path, m.inner+"/")) {
				f.remarks = append(f.remarks, short("A path in the container, which saw "+m.outer+" as "+m.inner+"."))
				d.fields[field] = f
				break
			}
		}
	}
	f := d.fields["?modules"]
	for _, m := range mounts {
		for _, v := range f.by.values {
			if _, path, _ := strings.Cut(v.text, m.inner+"/"); path != "" {
				f.remarks = append(f.remarks, short("Paths in the container, which saw "+m.outer+" as "+m.inner+"."))
				d.fields["?modules"] = f
				break
			}
		}
	}
}

// commandOfImage returns the command of a container with the given arguments. Images of
// vLLM, TGI and llama.cpp start the server without a command.
func commandOfImage(image string, words []word, depth int) (*command, error) {
	c, err := commandOfWords(words, depth)
	p := programOfImage(image)
	if err != nil || p == nil {
		return c, err
	}
	if c == nil {
		c = &command{program: p, words: words}
	}
	if c.program == nil {
		c.program = p // bare flags
	}
	switch p.Name { // variables that the image sets
	case "TGI":
		c.vars = append(variables{{"PORT", word{text: "80"}}}, c.vars...)
	case "llama.cpp":
		c.vars = append(variables{{"LLAMA_ARG_HOST", word{text: "0.0.0.0"}}}, c.vars...)
	}
	return c, nil
}

// servesModels reports whether the image, such as vllm/vllm-openai:v0.19.0, starts a server.
func servesModels(image string) bool { return programOfImage(image) != nil }

// programOfImage returns the program whose server the image starts, or nil.
func programOfImage(image string) *program {
	image, _, _ = strings.Cut(strings.ToLower(image), "@")
	switch {
	case strings.Contains(image, "vllm"):
		return vllm()
	case strings.Contains(image, "text-generation-inference"):
		return tgi()
	case strings.Contains(image, "llama.cpp:server"):
		return llamaServer()
	}
	return nil
}
