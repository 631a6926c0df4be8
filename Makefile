# Two commands set everything up on a fresh machine: `make demo` and `make test`. `make help` lists the rest.

CARGO  ?= cargo
NPM    ?= npm
GO     ?= go
MVN    ?= mvn
PREFIX ?= /usr/local
SBIN   ?= /sbin
STRIP  ?= strip
ENGINE ?= $(firstword $(foreach engine,podman docker buildah,$(if $(shell command -v $(engine)),$(engine))))
STOKER  = target/release/stoker
PAGE    = web/dist/index.html
SOURCES = $(wildcard web/*.html web/*.ts web/*.js web/*.json web/src/*.* web/src/charts/*.*)

# Servers of Google's and Azure's interfaces, that tests are run against.
FAKE_GCS = github.com/fsouza/fake-gcs-server@v1.56.1
AZURITE  = azurite@3.35.0

# What people read data sets with in Python, beside PyTorch.
PROGRAMS = numpy==2.4.6 h5py==3.16.0 pillow==13.0.0 safetensors==0.8.0 pyarrow==26.0.1 duckdb==2.0.1 fsspec==2026.9.0 pandas==3.1.1 zarr==3.1.6 \
  pytest==9.2.0 mypy==2.4.1

# And what trains with them, each with a row in docs/python.md.
FRAMEWORKS = torch==2.15.0 torchdata==0.11.0 lightning==2.6.6 datasets==5.2.0 webdataset==1.0.2 ray[data]==2.60.0 pillow==13.0.0 numpy==2.4.6

# Coverage for libFuzzer, as cargo-fuzz asks rustc for it, but by the compiler that builds the rest and without a sanitizer: there
# is next to no unsafe code in what is fuzzed (docs/decisions/0038).
FUZZED = azure chunked dlio google heads hosts key_file ledger log manifest members parquet profiles s3 said snapshot terms typed uses workload
FUZZ_FLAGS = --cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
FUZZ_HOST = $(shell rustc -vV | sed -n 's/^host: //p')

# One profile and one folder for everything, so that nothing is compiled twice (docs/decisions/0008).
RELEASE = --release --locked --workspace

.DEFAULT_GOAL = build
.PHONY: image image-test wheel packed build page web look demo test lint histories hits mutants clouds servers hdfs hadoop python programs frameworks fuzz slurm-test bench cluster-bench install uninstall completions man clean help cargo needs

build: cargo page ## build the program: target/release/stoker, with the page of its reports if Node is there
	$(CARGO) build --release --locked -p stoker

# Whoever installs what is built already needs no Rust, as root with sudo(8) has none.
$(STOKER):
	$(MAKE) --no-print-directory build

page:
	@if command -v $(NPM) > /dev/null; then $(MAKE) --no-print-directory web || echo "make: the page of reports was not built: they stay as they were, or plain" >&2; \
	else echo "make: there is no $(NPM): reports will be plain tables without charts" >&2; fi

web: $(PAGE) ## build the page of reports: web/dist/index.html (Node 20.19 or later)

$(PAGE): $(SOURCES) web/node_modules/.package-lock.json
	cd web && $(NPM) run --silent build

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	cd web && $(NPM) ci --silent --no-audit --no-fund
	@touch $@

look: web ## pictures of example reports in Chromium, narrow and wide, light and dark: target/look
	$(CARGO) test --release --locked -p stoker --test report
	cd web && node look.mjs ../target/look ../target/tmp/report/*.html

demo: build ## two epochs from a slow store, without Stoker and with it: a table and a picture
	$(STOKER) demo

test: cargo needs page ## run all tests; as root on Debian or Ubuntu install what they need first
	$(CARGO) test $(RELEASE) $(ARGS)

# Who may print is judged by tests/tidy.rs, which knows that the command may.
lint: cargo ## clippy, with warnings as errors
	$(CARGO) clippy $(RELEASE) --all-targets -- -D warnings -A clippy::print_stdout

mutants: cargo ## which lines of cache and mount no test holds (hours); ARGS='--sample 20 FILE ...' for less
	python3 tests/mutants.py $(ARGS)

histories: cargo ## play a million histories of the disk tier on a disk that forgets (docs/histories.md)
	$(CARGO) test --release --locked -p stoker-cache --features simulate --test histories -- $(or $(ARGS),--from 0 --count 1000000)

hits: cargo ## what whole epochs ask of the store, over sizes, shares and fill: a table (seconds; runs/*-hits)
	STOKER_ALL_HITS=1 $(CARGO) test --release --locked -p stoker-cache --test hits -- --nocapture

bench: build ## measure Stoker, its peers and the native file system side by side into OUT (root, some minutes)
	$(CARGO) run --release --locked -p stoker-benchmarks -- run --rounds 3 --out $(or $(OUT),runs/$$(date +%F)-$$(uname -n))

cluster-bench: build ## nodes of a cluster on a store with limits, against their bounds, into OUT (root, 20 minutes; ARGS="au store.join" for parts, whose rows replace those of before)
	OUT=$(or $(OUT),runs/$$(date +%F)-cluster) python3 benchmarks/cluster $(ARGS)

clouds: cargo servers ## tests of gs:// and az:// against servers of other makes (Go, Node)
	$(CARGO) test --release --locked -p stoker -p stoker-store --lib --test clouds -- $(or $(ARGS),cloud google azure container)

servers: ## fake-gcs-server and Azurite into target/tools, for tests of gs:// and az:// (two minutes)
	@mkdir -p target/tools
	@test -x target/tools/fake-gcs-server || { echo "making fake-gcs-server"; GOBIN=$(abspath target/tools) CGO_ENABLED=0 $(GO) install $(FAKE_GCS); } || { \
	  echo "make: could not make fake-gcs-server: is there Go ($(GO)), and its module proxy?" >&2; exit 1; }
	@test -e target/tools/node_modules/.bin/azurite-blob || { echo "installing Azurite"; $(NPM) install --no-save --no-audit --no-fund --silent --prefix target/tools $(AZURITE); } || { \
	  echo "make: could not install Azurite: is there npm ($(NPM)), and its registry?" >&2; exit 1; }

python: ## libraries that read data sets in Python, fsspec's own tests and mypy into target/tools, for tests of them (some minutes)
	@mkdir -p target/tools
	@test "$$(cat target/tools/programs/whole 2> /dev/null)" = "$(PROGRAMS)" || { python3 -m venv target/tools/programs && \
	  target/tools/programs/bin/pip install -q $(PROGRAMS) && echo "$(PROGRAMS)" > target/tools/programs/whole; } || { \
	  echo "make: could not install $(PROGRAMS): is there python3 with venv and pip, and their registry?" >&2; exit 1; }

programs: cargo needs python ## tests of real programs and libraries, on a mount and without, also with PyTorch (installed as root on Debian)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && ! python3 -c 'import torch' 2> /dev/null && ! /usr/bin/python3 -c 'import torch, numpy' 2> /dev/null; then \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-torch python3-numpy > /dev/null; fi
	$(CARGO) test --release --locked -p stoker --test programs -- --show-output

frameworks: build ## the rows of docs/python.md with torch, Lightning, HF datasets, webdataset, Ray (6 GB of them into target/tools)
	@mkdir -p target/tools
	@test "$$(cat target/tools/frameworks/whole 2> /dev/null)" = "$(FRAMEWORKS)" || { python3 -m venv target/tools/frameworks && \
	  target/tools/frameworks/bin/pip install -q $(FRAMEWORKS) && echo "$(FRAMEWORKS)" > target/tools/frameworks/whole; }
	cd python/tests && STOKER_ALL_FRAMEWORKS=1 STOKER_BIN=$(abspath $(STOKER)) PYTHONDONTWRITEBYTECODE=1 ../../target/tools/frameworks/bin/python -W ignore -m unittest -v test_frameworks

fuzz: cargo ## hostile bytes to what reads foreign ones, RUNS=1000000 to each of TARGETS="log s3 ..."; finds go to target/fuzz/corpus (a C++ compiler)
	cd fuzz && RUSTFLAGS="$(FUZZ_FLAGS)" $(CARGO) build --release --locked --target $(FUZZ_HOST) --target-dir ../target/fuzz
	@# What is new goes beside the corpus: what is kept of it is chosen by hand.
	python3 fuzz/run.py target/fuzz/$(FUZZ_HOST)/release/hostile $(or $(RUNS),1000000) $(or $(TARGETS),$(FUZZED))

hdfs: cargo hadoop ## tests of hdfs:// against Hadoop's own servers (Java, Maven; two minutes)
	$(CARGO) test --release --locked -p stoker -p stoker-store --lib --test hdfs -- $(or $(ARGS),hdfs cluster name_node)

hadoop: ## Hadoop's name node and data node into target/tools/hadoop, for tests of hdfs:// (Java, Maven; a minute)
	@mkdir -p target/tools
	@test -d target/tools/hadoop || { echo "bringing Hadoop"; $(MVN) -q -B -f tests/hadoop.xml dependency:copy-dependencies -DoutputDirectory=$(abspath target/tools/hadoop.new) \
	  && mv target/tools/hadoop.new target/tools/hadoop; } || { \
	  echo "make: could not bring Hadoop: is there Maven ($(MVN)), and its repository?" >&2; exit 1; }

slurm-test: build ## the recipe of contrib/slurm on a real Slurm with three nodes on this machine (root; munge, slurmctld, slurmd; a minute)
	STOKER=$(abspath $(STOKER)) bash tests/slurm.sh

wheel: build ## a wheel for pip with the program in it: target/wheel (python3 with pip, binutils)
	python3 python/wheel.py $(STOKER) target/wheel

packed: build
	rm -rf target/image
	@$(MAKE) --no-print-directory install DESTDIR=target/image PREFIX=/usr SBIN=/usr/sbin

image: packed ## an image of the program for Docker, Podman and Apptainer (podman, docker or buildah): ENGINE=..., BASE=..., IMAGE=stoker
	@test -n "$(ENGINE)" || { echo "make: there is no podman, docker or buildah to build an image with; target/image has all that it would hold" >&2; exit 1; }
	$(ENGINE) build $(if $(BASE),--build-arg BASE=$(BASE)) --network host -t $(or $(IMAGE),stoker) -f contrib/container/Containerfile target/image

image-test: packed ## the image in containers of podman: mount in one, read in another and on the host (root; mmdebstrap makes its base)
	bash tests/image.sh

install: $(STOKER) completions man ## install the program, its manual page and completions below PREFIX
	install -D -m 755 $(STOKER) $(DESTDIR)$(PREFIX)/bin/stoker
	@# Four fifths of it are for debuggers and backtraces; the one in target/ keeps them.
	@if command -v $(STRIP) > /dev/null; then $(STRIP) $(DESTDIR)$(PREFIX)/bin/stoker; fi
	@# mount(8) looks for it there alone: mount -t stoker, and lines of /etc/fstab.
	install -d $(DESTDIR)$(SBIN) && ln -sf $(PREFIX)/bin/stoker $(DESTDIR)$(SBIN)/mount.stoker
	install -D -m 644 target/man/stoker.1 $(DESTDIR)$(PREFIX)/share/man/man1/stoker.1
	install -D -m 644 target/completions/stoker.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/stoker
	install -D -m 644 target/completions/_stoker $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_stoker
	install -D -m 644 target/completions/stoker.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/stoker.fish

uninstall: ## remove what `make install` put below PREFIX
	rm -f $(DESTDIR)$(PREFIX)/bin/stoker $(DESTDIR)$(SBIN)/mount.stoker $(DESTDIR)$(PREFIX)/share/man/man1/stoker.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/stoker
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_stoker
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/stoker.fish

completions: $(STOKER) ## write completions for bash, zsh and fish into target/completions
	@mkdir -p target/completions
	$(STOKER) completions bash > target/completions/stoker.bash
	$(STOKER) completions zsh > target/completions/_stoker
	$(STOKER) completions fish > target/completions/stoker.fish

man: $(STOKER) ## write the manual page into target/man
	@mkdir -p target/man
	$(STOKER) man > target/man/stoker.1

clean: cargo ## remove everything that was built
	$(CARGO) clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1:/p' $(MAKEFILE_LIST) | while IFS=: read -r name what; do printf '  make %-13s %s\n' "$$name" "$$what"; done

cargo:
	@command -v $(CARGO) > /dev/null || { \
	  echo "make: there is no $(CARGO) on the PATH" >&2; \
	  echo "  try: install Rust 1.95 or later (https://rustup.rs), or name it: make CARGO=/path/to/cargo" >&2; exit 1; }
	@command -v cc > /dev/null || { \
	  echo "make: there is no C compiler, which Rust links with" >&2; \
	  echo "  try: apt-get install gcc libc6-dev, or what this system calls them" >&2; exit 1; }

# The tests mount (fuse3), read through Python and other programs, reach hosts by ssh, are told of members by DNS and etcd, ask a web server (nginx) and know
# each other by Kerberos. Without them they are left out, and say so.
needs:
	@missing=; \
	command -v fusermount3 > /dev/null || missing="$$missing fuse3"; \
	command -v python3 > /dev/null || missing="$$missing python3"; \
	command -v rsync > /dev/null || missing="$$missing rsync"; \
	command -v git > /dev/null || missing="$$missing git"; \
	command -v sqlite3 > /dev/null || missing="$$missing sqlite3"; \
	test -e /usr/lib/$$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1 || test -e /usr/lib64/faketime/libfaketimeMT.so.1 || missing="$$missing libfaketime"; \
	test -x /sbin/mkfs.ext4 || missing="$$missing e2fsprogs"; \
	command -v ssh > /dev/null || missing="$$missing openssh-client"; \
	test -x /usr/sbin/sshd || command -v sshd > /dev/null || missing="$$missing openssh-server"; \
	command -v dnsmasq > /dev/null || test -x /usr/sbin/dnsmasq || missing="$$missing dnsmasq-base"; \
	command -v etcd > /dev/null || missing="$$missing etcd-server"; \
	command -v etcdctl > /dev/null || missing="$$missing etcd-client"; \
	command -v nginx > /dev/null || test -x /usr/sbin/nginx || missing="$$missing nginx-light"; \
	command -v krb5kdc > /dev/null || test -x /usr/sbin/krb5kdc || missing="$$missing krb5-kdc"; \
	command -v kinit > /dev/null || missing="$$missing krb5-user"; \
	test -n "$$missing" || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "installing what the tests need:$$missing"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; } > /dev/null \
	    || echo "make: could not install$$missing; some tests will say SKIPPED" >&2; \
	else \
	  echo "make: missing for some tests:$$missing (as root: apt-get install$$missing)" >&2; \
	fi
