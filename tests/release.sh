#!/usr/bin/env bash
# make release-check: two releases of this commit, from two folders, have equal bytes, and what they install works.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$(git rev-parse HEAD)
rm -rf bin/release
for n in 1 2; do
	git clone -q . bin/release/$n
	git -C bin/release/$n checkout -q --detach "$commit"
	make --no-print-directory -C bin/release/$n release GITHUB_TOKEN=
done
cd bin/release
for file in checksums.txt $(awk '{print $2}' 1/dist/checksums.txt); do
	cmp "1/dist/$file" "2/dist/$file"
done
cd 1/dist
sha256sum --quiet -c checksums.txt
[ "$(wc -l <checksums.txt)" -eq 10 ] # four archives, their SBOMs, two Debian packages

mkdir tar deb
tar -xzf leafbus_*_linux_amd64.tar.gz -C tar --strip-components=1
dpkg-deb -x leafbus_*_linux_amd64.deb deb
for leaf in tar/leaf deb/usr/bin/leaf; do
	"$leaf" --version | grep -F "commit $commit of 20"
done
for file in README.md docs/operate.md deploy/nats/users.conf deploy/helm/leafbus/values.yaml deploy/helm/leafbus/alerts.yml; do
	[ -s "tar/$file" ] || { echo "the archives lack $file"; exit 1; }
done

# Each link of a page in the archive leads to a file there.
lacking=$(find tar -name '*.md' | while read -r page; do
	{ grep -oP '\]\(\K[^)#: ]+(?=[)#])' "$page" || true; } | while read -r link; do
		[ -e "$(dirname "$page")/$link" ] || echo "the archives lack $link, to which $page leads"
	done
done)
[ -z "$lacking" ] || { echo "$lacking"; exit 1; }

# systemd wants the program to exist where the unit says.
unit=$PWD/leaf.service
sed "s|/usr/bin/leaf|$PWD/deb/usr/bin/leaf|" deb/usr/lib/systemd/system/leaf.service >"$unit"
if command -v systemd-analyze >/dev/null; then
	found=$(systemd-analyze verify --man=no "$unit" 2>&1 || true)
	[ -z "$found" ] || { echo "$found"; exit 1; }
else
	echo 'leaf.service is not checked: there is no systemd-analyze'
fi
echo 'two releases have equal bytes'
