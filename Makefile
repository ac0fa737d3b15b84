# Thin over CMake. Everything is built under build/: release, asan and tsan beside each other.
.PHONY: help build run run-cluster test bench fmt lint install clean
.DEFAULT_GOAL := help

CMAKE_BUILD = cmake -S . -G Ninja
C_FILES = $(shell git ls-files '*.c' '*.h')

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

build: ## build build/admitone
	@scripts/deps build
	@$(CMAKE_BUILD) -B build/release >/dev/null
	@cmake --build build/release
	@ln -sf release/admitone build/admitone

run: build ## start it with demo events, data in data/
	@exec build/admitone serve --demo

run-cluster: build ## start two nodes on Redis and PostgreSQL, both private to it
	@scripts/deps cluster
	@exec scripts/run-cluster

test: ## every test: ASan+UBSan, and what has threads also under TSan
	@scripts/deps build test
	@scripts/test

bench: build ## compare with nginx on this machine; prints ratios
	@scripts/deps bench cluster
	@node bench/run.mjs

fmt: ## format the C files
	@scripts/deps lint
	@clang-format -i $(C_FILES)

lint: ## formatting, clang's warnings, clang-tidy, cppcheck
	@scripts/deps build lint
	@scripts/lint

install: build ## install into PREFIX (default /usr/local)
	@cmake --install build/release --prefix $(or $(PREFIX),/usr/local)

clean: ## remove what was built
	@rm -rf build
