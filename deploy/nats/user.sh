#!/bin/sh
# Cuts a user of users.conf off, or gives it back, while all others go on:
#   ./user.sh off shop
#   ./user.sh on shop
# RELOAD is the command by which the server reads its configuration again: the default, or systemctl reload leaf.
set -eu
cd "$(dirname "$0")"
name=$(printf %s "${2:?off or on, and the name of a user}" | tr a-z A-Z)
grep -q "permissions: \$$name }" users.conf || { echo "users.conf has no user with the permissions \$$name" >&2; exit 1; }
case $1 in
off) edit='s/^#*/#/' ;;
on) edit='s/^#*//' ;;
*) echo "the first argument is off or on" >&2; exit 2 ;;
esac
sed -i "/^#*  $name: {/,/^#*  }/$edit; /permissions: \$$name }/$edit" users.conf
${RELOAD:-nats-server --signal reload}
