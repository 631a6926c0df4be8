# Two commands set everything up on a fresh machine: `make demo` and `make test`.
CARGO ?= cargo

.PHONY: build demo test

build:
	$(CARGO) build --release --locked -p stoker

demo: build
	target/release/stoker demo

test:
	$(CARGO) test --release --locked --workspace
