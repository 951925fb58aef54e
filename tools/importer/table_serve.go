package importer

// logLevels maps vLLM's log levels to vapp's.
var logLevels = map[string]string{
	"trace": "debug", "debug": "debug", "info": "info", "warning": "warn", "error": "error", "critical": "error",
}
