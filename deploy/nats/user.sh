#!/bin/sh
# Cuts a user of users.conf off, or gives it back, while all others go on:
#   ./user.sh off shop
#   ./user.sh on shop
# RELOAD is the command by which the server reads its configuration again: the default, or systemctl reload leaf.
# If that would fail, users.conf stays as it was.
set -eu
cd "$(dirname "$0")"
name=$(printf %s "${2:?off or on, and the name of a user}" | tr a-z A-Z)
grep -q "permissions: \$$name }" users.conf || { echo "users.conf has no user with the permissions \$$name" >&2; exit 1; }
case $1 in
off) edit='s/^#*/#/' ;;
on) edit='s/^#*//' ;;
*) echo "the first argument is off or on" >&2; exit 2 ;;
esac
# readable fails if the server could not read its configuration.
readable() {
	if command -v nats-server >/dev/null; then
		nats-server -c nats.conf -t
	else # a certificate that is not valid any more must keep nobody from cutting a user off
		unset LEAF_SERVER
		! leaf serve --check --nats-config nats.conf --listen 127.0.0.1:0 --http '' --data-dir none | grep '^problem *ports'
	fi
}
cp -p users.conf users.conf.before
sed "/^#*  $name: {/,/^#*  }/$edit; /permissions: \$$name }/$edit" users.conf.before >users.conf
if readable && ${RELOAD:-nats-server --signal reload}; then
	rm users.conf.before
else
	mv users.conf.before users.conf
	echo "users.conf stays as it was" >&2
	exit 1
fi
