help: ## print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

native: ## build the text library
	./scripts/build-native.sh

test: native ## unit tests
	go vet ./... && go test ./...

ci: test ## everything continuous integration runs
