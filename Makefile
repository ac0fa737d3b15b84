# Thin over CMake. Everything is built under build/: release, asan and tsan beside each other.
.PHONY: help build run run-cluster test test-quick bench fmt lint install clean
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

run-cluster: build ## start two nodes on Redis, PostgreSQL and Kafka, all private to it
	@scripts/deps cluster kafka
	@exec scripts/run-cluster

test: ## every test: ASan+UBSan, and where threads meet also TSan
	@scripts/deps build test kafka
	@scripts/test

test-quick: ## unit, contract and end-to-end tests on memory and SQLite, ASan+UBSan only
	@scripts/deps build test kafka
	@scripts/test --quick

bench: build ## compare with nginx on this machine; prints ratios
	@scripts/deps bench cluster kafka
	@node bench/run.mjs

fmt: ## format the C files
	@scripts/deps lint
	@clang-format -i $(C_FILES)

lint: ## formatting, clang's warnings, clang-tidy, cppcheck
	@scripts/deps build lint
	@scripts/lint

install: build ## install into PREFIX (default /usr/local), below DESTDIR if that is given
	@$(CMAKE_BUILD) -B build/release -DCMAKE_INSTALL_PREFIX=$(or $(PREFIX),/usr/local) >/dev/null
	@DESTDIR=$(DESTDIR) cmake --install build/release

clean: ## remove what was built
	@rm -rf build
