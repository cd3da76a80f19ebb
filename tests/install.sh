#!/usr/bin/env bash
# Installs what the tests need beyond Go and is missing. Where nothing is
# missing it says nothing and needs neither root nor the network.
set -euo pipefail

# Debian keeps servers where the PATH of a user often does not lead.
PATH="$PATH:/usr/local/sbin:/usr/sbin"

# have COMMAND... succeeds if all of them are there.
have() {
	local command
	for command; do
		command -v "$command" >/dev/null || return 1
	done
}

root() {
	if [ "$(id -u)" -ne 0 ] && have sudo; then
		sudo "$@"
	else
		"$@"
	fi
}

# install WHY BY_HAND PACKAGE... installs Debian's packages, or says what to do
# where there is no apt-get.
install() {
	local why=$1 by_hand=$2
	shift 2
	if ! have apt-get; then
		echo "tests/install.sh: $why, and there is no apt-get to install it: $by_hand" >&2
		exit 1
	fi
	echo "tests/install.sh: $why: installing $*" >&2
	# A list of packages that cannot be updated may still do. Nothing is removed
	# for the tests: MySQL and MariaDB exclude each other.
	root apt-get update -q >&2 || true
	root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -q --no-install-recommends --no-remove "$@" >&2 || {
		echo "tests/install.sh: installing $* failed (see above): $by_hand" >&2
		exit 1
	}
}

# What only the drills need: make drills calls this with the word drills.
drills=false
[ "${1:-}" != drills ] || drills=true

# The server without the package mariadb-server, which would also run one as a
# service of the system. The client's package has my_print_defaults, which
# mariadb-install-db calls.
have mariadbd mariadb-install-db my_print_defaults ||
	install 'the tests start MariaDB servers of their own, and mariadbd or mariadb-install-db is missing' \
		'install mariadbd and mariadb-install-db of MariaDB 10.11, or set LEAF_TEST_MYSQL to the DSN of a server (the tests that stop theirs then still fail)' \
		mariadb-server-core mariadb-client-core

# The classes without the package zookeeper, which would also make a user and
# bring a desktop's Java. That of the logger comes with them.
{ have java && [ -e /usr/share/java/zookeeper.jar ] && [ -e /usr/share/java/slf4j-simple.jar ]; } ||
	install 'the tests start ZooKeeper servers of their own, and java, /usr/share/java/zookeeper.jar or slf4j-simple.jar there is missing' \
		'install java 17 and the jars of ZooKeeper 3.8 where Debian has them, or set LEAF_TEST_ZOOKEEPER to the host:port of a server (the tests that stop theirs then still fail)' \
		libzookeeper-java default-jre-headless

# For the clients in other languages, in the folder clients. That in JavaScript is tested with nats.js from npm.
have node npm ||
	install "the tests run the client in JavaScript, and node or npm is missing" \
		'install Node.js 18 or later, and npm' \
		nodejs npm
have java javac ||
	install "the tests compile and run the client in Java, and javac is missing" \
		'install a JDK, 11 or later' \
		default-jdk-headless
have python3 ||
	install "the tests run the client in Python, and python3 is missing" \
		'install Python 3.9 or later' \
		python3

# For the dashboard, which tests look at in a browser without a window.
[ -n "${LEAF_TEST_CHROMIUM:-}" ] || have chromium || have chromium-browser || have google-chrome ||
	install 'the tests look at the dashboard in a browser, and none of chromium, chromium-browser and google-chrome is there' \
		'install Chromium or Chrome, or set LEAF_TEST_CHROMIUM to the path of one' \
		chromium

# For the commands in README.md and docs, which the tests run as they stand there.
have curl ||
	install 'the tests run the commands of the README, and curl is missing' \
		'install curl' \
		curl

# For certificates, and for commands at a terminal.
have openssl script ||
	install 'the tests make certificates and run commands at a terminal, and openssl or script is missing' \
		'install OpenSSL, and script of util-linux' \
		openssl bsdutils

# Two programs of Debian's package prometheus: promtool tests the rules in deploy/prometheus, and the nights among the drills
# start prometheus. The package itself would also run one as a service of the system.
prometheus_programs() {
	local by_hand='install promtool of Prometheus 2.42 or later, and for the drills prometheus, or set LEAF_TEST_PROMETHEUS to its path' folder
	have apt-get dpkg || {
		echo "tests/install.sh: $* is missing, and there is no apt-get to install it: $by_hand" >&2
		exit 1
	}
	echo "tests/install.sh: $* is missing: installing the programs of Prometheus" >&2
	root apt-get update -q >&2 || true
	folder=$(mktemp -d)
	{ (cd "$folder" && apt-get download -q prometheus >&2 && dpkg -x prometheus_*.deb .) &&
		root cp "$folder/usr/bin/promtool" "$folder/usr/bin/prometheus" /usr/local/bin/; } || {
		echo "tests/install.sh: installing the programs of Prometheus failed (see above): $by_hand" >&2
		exit 1
	}
	rm -r "$folder"
}
have promtool || prometheus_programs promtool
if $drills && [ -z "${LEAF_TEST_PROMETHEUS:-}" ]; then
	have prometheus || prometheus_programs prometheus
fi
