# make build   the module, build/ngx_http_zstd_mmap_module.so
# make run     a demo site on 127.0.0.1:$(PORT) until Ctrl-C
# make test    all tests; TESTS="t/020-*.t" runs some of them
# make test-large  bodies and files of up to 10 GiB, no part of make test: five to
#              ten minutes, and 1 GB of disk in TMPDIR
# make asan    the same tests with an nginx built with ASan and UBSan
# make fuzz    the fuzz targets, FUZZ_SECONDS each
# make bench-replies  CPU of replies against gzip_static; BENCH="--pairs 9"
# make bench-ranges   CPU of a far range against sendfile; BENCH likewise
# make bench-stream   CPU of streamed bodies against a filter; BENCH="--parts"
# make bench-latency  small replies beside cold decodes
# make valgrind, make lint, make clean
#
# Missing Debian packages are installed (as root or with sudo).

PORT         ?= 8080
TESTS        ?=
FUZZ_SECONDS ?= 60
BENCH        ?=
JOBS         ?= 2

# names that make or a shell would take apart
ifneq ($(shell printf %s '$(subst ','"'"',$(CURDIR))' | LC_ALL=C tr -d 'A-Za-z0-9/_.,@%+~\200-\377-'),)
$(error the path of the checkout has a special character: $(CURDIR))
endif

CC        = gcc
FUZZ_CC   = clang

SRC       = ngx_zstd_mmap_module
CORE      = $(SRC)/core
MODULE    = build/ngx_http_zstd_mmap_module.so

CORE_SRCS = $(wildcard $(CORE)/*.c)
CORE_HDRS = $(wildcard $(CORE)/*.h)
MOD_FILES = config $(wildcard $(SRC)/*.[ch]) $(CORE_SRCS) $(CORE_HDRS)
UNITS     = $(patsubst t/unit/%.c,%,$(wildcard t/unit/*.c))
UNIT_HDRS = $(wildcard t/unit/*.h) $(CORE_HDRS)
FUZZERS   = $(filter-out replay,$(patsubst t/fuzz/%.c,%,$(wildcard t/fuzz/*.c)))
FUZZ_HDRS = $(wildcard t/fuzz/*.h) $(CORE_HDRS)

# core is C11 and POSIX: no path to an nginx header here
CORE_FLAGS = -std=c11 -D_GNU_SOURCE -I $(CORE) -g -Wall -Wextra -Werror \
             -Wpointer-arith
SAN_FLAGS  = -O1 -fsanitize=address,undefined -fno-omit-frame-pointer \
             -fno-sanitize-recover=undefined
LIBS       = -lzstd -lpthread -ldl

.DELETE_ON_ERROR:

.PHONY: build run test test-large asan fuzz valgrind lint clean demo
.PHONY: bench-replies bench-ranges bench-stream bench-latency
.PHONY: need-build need-run need-test need-lint need-asan need-bench

build: $(MODULE)

need-build need-run need-test need-lint need-asan need-bench: need-%:
	@tools/build/packages $*

$(MODULE): $(MOD_FILES) tools/build/module | need-build
	@tools/build/module build/nginx $@

# demo site

demo: build/demo/complete

build/demo/complete: tools/build/demo-site | need-run
	@tools/build/demo-site

run: need-build need-run build demo
	@exec env PORT=$(PORT) tools/build/run

# core alone, unit tests, replays

build/core/%.o: $(CORE)/%.c $(CORE_HDRS) | need-test
	@mkdir -p $(@D)
	$(CC) $(CORE_FLAGS) -O2 -c -o $@ $<

build/core/libzmap.a: $(CORE_SRCS:$(CORE)/%.c=build/core/%.o)
	rm -f $@
	ar rcs $@ $^

build/unit/%: t/unit/%.c $(UNIT_HDRS) build/core/libzmap.a
	@mkdir -p $(@D)
	$(CC) $(CORE_FLAGS) -O2 -I t/unit -o $@ $< build/core/libzmap.a \
	    -lcmocka $(LIBS)

build/asan/core/%.o: $(CORE)/%.c $(CORE_HDRS) | need-test
	@mkdir -p $(@D)
	$(CC) $(CORE_FLAGS) $(SAN_FLAGS) -c -o $@ $<

build/asan/core/libzmap.a: $(CORE_SRCS:$(CORE)/%.c=build/asan/core/%.o)
	rm -f $@
	ar rcs $@ $^

build/asan/unit/%: t/unit/%.c $(UNIT_HDRS) build/asan/core/libzmap.a
	@mkdir -p $(@D)
	$(CC) $(CORE_FLAGS) $(SAN_FLAGS) -I t/unit -o $@ $< \
	    build/asan/core/libzmap.a -lcmocka $(LIBS)

build/fuzz/%-replay: t/fuzz/%.c t/fuzz/replay.c $(FUZZ_HDRS) \
                     build/asan/core/libzmap.a
	@mkdir -p $(@D)
	$(CC) $(CORE_FLAGS) $(SAN_FLAGS) -I t/fuzz -o $@ $< t/fuzz/replay.c \
	    build/asan/core/libzmap.a $(LIBS)

build/fuzz/%-fuzz: t/fuzz/%.c $(FUZZ_HDRS) $(CORE_SRCS) | need-test
	@mkdir -p $(@D)
	$(FUZZ_CC) $(CORE_FLAGS) -fsanitize=fuzzer $(SAN_FLAGS) -I t/fuzz \
	    -o $@ $< $(CORE_SRCS) $(LIBS)

BENCHES = build/bench/streams build/bench/latency
REPLAYS = $(FUZZERS:%=build/fuzz/%-replay)

test: need-build need-test need-run need-bench build demo build/core/libzmap.a \
      $(UNITS:%=build/unit/%) $(REPLAYS) $(BENCHES)
	@exec env JOBS=$(JOBS) tools/build/prove build/unit $(TESTS)

test-large: need-build need-test build
	@exec env JOBS=1 tools/build/prove --only $(or $(TESTS),t/large/*.t)

asan: need-build need-test need-run need-bench need-asan demo \
      $(UNITS:%=build/asan/unit/%) $(REPLAYS) $(BENCHES)
	@tools/build/asan-nginx
	@exec env JOBS=$(JOBS) tools/build/prove --asan build/asan/unit $(TESTS)

fuzz: need-build need-test $(FUZZERS:%=build/fuzz/%-fuzz)
	@tools/build/fuzz $(FUZZ_SECONDS) $(FUZZERS)

valgrind: need-build need-test need-run build demo
	@exec env ZMAP_VALGRIND=1 tools/build/prove --only t/950-valgrind.t

bench-replies: need-build need-bench build
	@bench/replies $(BENCH)

bench-ranges: need-build need-bench build
	@bench/ranges $(BENCH)

build/bench/%: bench/lib/%.c bench/lib/client.c bench/lib/client.h | need-build
	@mkdir -p $(@D)
	$(CC) $(CORE_FLAGS) -O2 -o $@ $< bench/lib/client.c $(LIBS)

bench-stream: need-build need-bench build build/bench/streams
	@bench/stream $(BENCH)

bench-latency: need-build need-bench build build/bench/latency
	@bench/latency $(BENCH)

lint: need-build need-lint need-test build
	@tools/build/lint

clean:
	rm -rf build
