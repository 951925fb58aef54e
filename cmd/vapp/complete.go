package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vapp.dev/appliance"
	"vapp.dev/appliance/chat/dialect"
	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/engine/models"
	"vapp.dev/schema"
	"vapp.dev/tools/bench"
	"vapp.dev/tools/compat"
)

// completer returns the candidates for a word of the command line. It uses no network, and where
// something cannot be read it has fewer candidates and no message.
type completer = cobra.CompletionFunc

// completeValues gives the flags and the arguments of all commands below root their completers.
func completeValues(root *cobra.Command) {
	each(root, func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), root.Name()+" ")
		c.Flags().VisitAll(func(f *pflag.Flag) {
			of := flagValues[path+" --"+f.Name]
			if of == nil {
				of = flagValues["--"+f.Name]
			}
			if of == nil && plainValue(f) {
				of = cobra.NoFileCompletions
			}
			if of != nil {
				_ = c.RegisterFlagCompletionFunc(f.Name, of) // an error: the command has its own
			}
		})
		if of := argumentValues[path]; of != nil && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = of
		} else if c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 && path != "import" {
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
	})
}

func each(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		each(sub, do)
	}
}

// plainValue reports whether a flag takes a number or a duration, which no file's name is.
func plainValue(f *pflag.Flag) bool {
	kind := f.Value.Type()
	return strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "float") || kind == "duration"
}

// flagValues are the completers of flags: of one command, or of all that have the flag.
var flagValues = map[string]completer{
	"--gpu":           completeDevices,
	"--over":          completeList(completeDevices),
	"--backend":       completeBackends,
	"--compat":        completeReleases,
	"--explain":       completeItems,
	"--config":        completeFiles("json"),
	"--wait":          words("ready"),
	"--memory":        words("16GiB", "32GiB", "64GiB", "128GiB"),
	"--set":           completeFieldPath,
	"--reasoning":     completeDialects(dialect.Reasonings),
	"--tools":         completeDialects(dialect.Tools),
	"--template":      completeFiles("jinja"),
	"--model":         completeModels,
	"--host":          words("127.0.0.1\tthis machine only", "0.0.0.0\tevery network"),
	"--html":          completeFiles("html"),
	"--finish-reason": words("stop", "length"),

	"bench serve --backend":            words("openai\tcompletions", "openai-chat", "openai-embeddings", "vllm\tcompletions"),
	"bench serve --percentile-metrics": completeList(words("ttft\ttime to first token", "tpot\ttime per output token", "itl\tinter-token latency", "e2el\tend-to-end latency")),
	"--dataset-name":                   words(strings.Split(bench.Datasets, ", ")...),
	"--ramp-up-strategy":               words("linear", "exponential"),
	"--compare":                        completeFiles("json"),
}

// argumentValues are the completers of arguments, by command.
var argumentValues = map[string]completer{
	"up": completeSources, "run": first(completeSources), "plan": completeSources, "fit": first(completeSources),
	"chat": first(completeSources), "doctor": first(completeSources), "pull": first(completeSources),
	"bench engine": completeSources, "bench latency": first(completeSources), "bench throughput": first(completeSources),
	"audit": first(completeFiles("log")), "vet": completeFiles("cue"), "lock": completeFiles("cue"), "diff": completeFiles("cue"),
	"dialect render": completeFiles("cue"), "models": first(completeCatalogue), "devices": first(completeDevices),
	"init": first(completeFolders), "man": first(completeFolders),
}

// words returns a completer of fixed candidates.
func words(list ...string) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return starting(list, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// starting returns the candidates that begin with what was typed.
func starting(list []string, typed string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !strings.HasPrefix(s, typed) })
}

// first completes the first argument only.
func first(of completer) completer {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return of(c, args, typed)
	}
}

// completeList completes the last element of a list with commas.
func completeList(of completer) completer {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		cut := strings.LastIndexByte(typed, ',') + 1
		list, how := of(c, args, typed[cut:])
		given := strings.Split(typed[:cut], ",")
		var out []string
		for _, s := range list {
			if name, _, _ := strings.Cut(s, "\t"); !slices.Contains(given, name) {
				out = append(out, typed[:cut]+s)
			}
		}
		return out, how | cobra.ShellCompDirectiveNoSpace
	}
}

func completeDevices(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	list, err := devices.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, d := range list {
		about := plan.Size(d.TotalBytes)
		if d.DriverName != "" {
			about = d.DriverName + ", " + about
		}
		if d.PlanOnly != "" {
			about += ", plan only"
		}
		out = append(out, d.Name+"\t"+about)
	}
	return starting(out, typed), cobra.ShellCompDirectiveNoFileComp
}

func completeBackends(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	out := []string{"auto\tthe first that can serve here"}
	for _, op := range backends() {
		out = append(out, op.Name())
	}
	return starting(out, typed), cobra.ShellCompDirectiveNoFileComp
}

func completeReleases(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, r := range compat.Releases() {
		if r.Reconstructed() {
			out = append(out, string(r)+"\treconstructed")
		} else {
			out = append(out, string(r))
		}
	}
	return starting(out, typed), cobra.ShellCompDirectiveNoFileComp
}

func completeDialects(list func() []dialect.Entry) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, e := range list() {
			out = append(out, e.Name)
		}
		return starting(out, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// itemsPatience bounds the time in which a profile is planned for its items.
var itemsPatience = 80 * time.Millisecond

// completeItems completes the items of the profile's plan; without a profile, or if planning it
// takes too long, the items that every plan has.
func completeItems(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	items := []string{"total", "budget", "capacity", "concurrency", "admitted", "runtime", "reserve", "text"}
	for a := backend.Arena(0); a < backend.NumArenas; a++ {
		items = append(items, a.String())
	}
	if len(args) > 0 {
		made := make(chan []string, 1)
		go func() {
			path, m, err := profileArg(c, args[0], localMachine(), argUse{})
			if err != nil {
				return
			}
			p, err := appliance.Prepare(path, m)
			if err != nil {
				return
			}
			defer p.Close()
			made <- p.Plan.Items()
		}()
		select {
		case items = <-made:
		case <-time.After(itemsPatience):
		}
	}
	return starting(items, typed), cobra.ShellCompDirectiveNoFileComp
}

// completeFieldPath completes a field of a profile for --set: "serve.po" to "serve.port=", and
// behind "=" the values that the field names.
func completeFieldPath(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	path, value, behind := strings.Cut(typed, "=")
	var out []string
	for _, f := range schema.Completions() {
		switch {
		case behind && f.Path == path:
			for _, v := range f.Values {
				if plain := strings.Trim(v, `"`); strings.HasPrefix(v, value) {
					out = append(out, path+"="+v)
				} else if strings.HasPrefix(plain, value) {
					out = append(out, path+"="+plain)
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		case behind || !strings.HasPrefix(f.Path, path) || strings.Contains(f.Path[len(path):], "."):
			// one level at a time
		case f.Struct:
			out = append(out, f.Path+".")
		default:
			out = append(out, f.Path+"=\t"+f.Allowed)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeTopics completes the commands of vapp help.
func completeTopics(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	found, rest, err := c.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, sub := range found.Commands() {
		if sub.IsAvailableCommand() {
			out = append(out, sub.Name()+"\t"+sub.Short)
		}
	}
	return starting(out, typed), cobra.ShellCompDirectiveNoFileComp
}

// completeSources completes profiles, model files, folders and names of models.
func completeSources(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	out := paths(typed, "cue", "gguf")
	names, _ := completeModels(c, args, typed)
	return withSpace(append(out, names...))
}

// completeModels completes the names of models: of the catalogue and of the hub's cache.
func completeModels(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	out := catalogueNames()
	for _, name := range cachedNames(localMachine().Hub.Cache) {
		known := func(s string) bool { return strings.HasPrefix(s, name+"\t") }
		if i := slices.IndexFunc(out, known); i >= 0 {
			out[i] += ", in the cache"
		} else {
			out = append(out, name+"\tin the cache")
		}
	}
	return withoutOrg(out, typed), cobra.ShellCompDirectiveNoFileComp
}

func completeCatalogue(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return withoutOrg(catalogueNames(), typed), cobra.ShellCompDirectiveNoFileComp
}

// withoutOrg returns the names that begin with what was typed; if none does, those whose part behind
// the organisation does, without the organisation.
func withoutOrg(names []string, typed string) []string {
	out := starting(names, typed)
	if len(out) > 0 || typed == "" {
		return out
	}
	for _, n := range names {
		if _, name, ok := strings.Cut(n, "/"); ok && strings.HasPrefix(name, typed) {
			out = append(out, name)
		}
	}
	return out
}

func catalogueNames() []string {
	list, err := models.Catalogue()
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name+"\t"+billions(e.Parameters)+" parameters, "+e.Quantization)
	}
	return out
}

// cachedNames returns the repositories in a cache of the hub.
func cachedNames(cache string) []string {
	list, err := os.ReadDir(cache)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range list {
		if name, ok := strings.CutPrefix(e.Name(), "models--"); ok {
			out = append(out, strings.Replace(name, "--", "/", 1))
		}
	}
	return out
}

// completeFiles completes folders and files with an extension.
func completeFiles(extension string) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return withSpace(paths(typed, extension))
	}
}

func completeFolders(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return withSpace(paths(typed))
}

// withSpace asks for a space behind a word, unless only folders are left, into which the user may go
// on.
func withSpace(list []string) ([]string, cobra.ShellCompDirective) {
	how := cobra.ShellCompDirectiveNoFileComp
	folder := func(s string) bool { return strings.HasSuffix(s, "/") }
	if len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool { return !folder(s) }) {
		how |= cobra.ShellCompDirectiveNoSpace
	}
	return list, how
}

// maxPaths bounds the entries of a folder that are looked at.
const maxPaths = 4096

// paths returns the folders and the files with one of the extensions that begin with what was typed.
// Hidden ones are listed where a dot was typed.
func paths(typed string, extensions ...string) []string {
	slash := strings.LastIndexByte(typed, '/') + 1
	dir, begun := typed[:slash], typed[slash:]
	at := dir
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil
		}
		at = filepath.Join(home, rest)
	}
	if at == "" {
		at = "."
	}
	f, err := os.Open(at)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, _ := f.ReadDir(maxPaths)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var out []string
	for _, e := range list {
		name := e.Name()
		if !strings.HasPrefix(name, begun) || strings.HasPrefix(name, ".") && !strings.HasPrefix(begun, ".") {
			continue
		}
		isDir := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			st, err := os.Stat(filepath.Join(f.Name(), name))
			isDir = err == nil && st.IsDir()
		}
		switch {
		case isDir:
			out = append(out, dir+name+"/")
		case slices.Contains(extensions, strings.TrimPrefix(filepath.Ext(name), ".")):
			out = append(out, dir+name)
		}
	}
	return out
}
