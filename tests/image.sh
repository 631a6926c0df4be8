#!/bin/bash
# The image of contrib/container in real containers: a bucket mounted in one, read in another and on the host. As root, with podman and
# mmdebstrap, which makes its base of Debian's packages: `make image-test`.
set -eu
for program in podman mmdebstrap; do
  command -v "$program" >/dev/null || { echo "SKIPPED: there is no $program here (apt install podman mmdebstrap)"; exit 0; }
done
[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] || { echo "SKIPPED: only root can make these containers, and they need /dev/fuse"; exit 0; }

here=$(cd "$(dirname "$0")/.." && pwd)
base=$here/target/tools/debian.tar
work=$(mktemp -d /tmp/stoker-image.XXXXXX)
runtime=$(command -v runc || command -v crun)
# A store of images of its own, so that none of this machine's is touched.
engine() { podman --storage-driver vfs --root "$work/images" --runroot "$work/run" --runtime "$runtime" --log-level error "$@"; }
# Podman asks for more open files than a machine may grant.
inside() { engine run --network host --ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" --ulimit nproc=4096:4096 "$@"; }
emulated=
end() {
  engine rm --all --force >/dev/null 2>&1 || true
  [ -z "$emulated" ] || kill "$emulated" 2>/dev/null || true
  umount -l "$work/data" 2>/dev/null || true
  umount -l "$work/shared" 2>/dev/null || true
  engine rmi --all --force >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap end EXIT
fail() { echo "FAILED: $*"; engine logs mounted 2>&1 | tail -n 20; exit 1; }
soon() { for _ in $(seq 100); do "$@" && return 0; sleep 0.1; done; return 1; }

# What is in it, before there is one: what `make install` wrote, and nothing else.
files=$(cd "$here/target/image" && find . -type f -o -type l | sort | tr '\n' ' ')
expected="./usr/bin/stoker ./usr/sbin/mount.stoker ./usr/share/bash-completion/completions/stoker"
expected="$expected ./usr/share/fish/vendor_completions.d/stoker.fish ./usr/share/man/man1/stoker.1 ./usr/share/zsh/site-functions/_stoker "
[ "$files" = "$expected" ] || fail "the image would hold $files"

[ -e "$base" ] || mmdebstrap --quiet --variant=minbase bookworm "$base"
engine import "$base" debian >/dev/null
# No container within whatever this runs in, only another root folder.
engine build --isolation chroot --network host --build-arg BASE=localhost/debian --tag stoker \
  --file "$here/contrib/container/Containerfile" "$here/target/image" >"$work/build.out" 2>&1 || { tail -n 20 "$work/build.out"; exit 1; }

mkdir -p "$work/bucket" "$work/cache" "$work/shared"
echo small >"$work/bucket/small"
head -c 30000000 /dev/urandom >"$work/bucket/large"
sum=$(sha256sum <"$work/bucket/large")
"$here/target/release/stoker" emulate --bucket bucket "$work/bucket" --listen 127.0.0.1:17120 >"$work/emulate.out" 2>&1 &
emulated=$!
mount --bind "$work/shared" "$work/shared" && mount --make-shared "$work/shared"
mkdir "$work/shared/data"

mount_it() {
  inside --detach --name mounted --device /dev/fuse --cap-add SYS_ADMIN --volume "$work/shared:/shared:rshared" \
    --volume "$work/cache:/cache" stoker mount s3://bucket /shared/data --anonymous --region us-east-1 \
    --endpoint http://127.0.0.1:17120 --log-format json -v >/dev/null
  # A dead mount is one to mountpoint(1), too.
  soon test -e "$work/shared/data/small" || fail "nothing was mounted"
}
mount_it
[ "$(sha256sum <"$work/shared/data/large")" = "$sum" ] || fail "other bytes on the host"
read=$(inside --rm --volume "$work/shared:/shared:ro,rslave" --entrypoint sha256sum stoker /shared/data/large)
[ "${read%% *}" = "${sum%% *}" ] || fail "other bytes in a second container: $read"
status=$(engine exec mounted stoker status --json)
echo "$status" | grep -q '"passthrough":"on"' || fail "files do not pass through: $status"
# Whatever gathers its logs gets one object a line.
engine logs mounted 2>&1 | grep '^{' | while read -r line; do echo "$line" | python3 -m json.tool >/dev/null || exit 1; done || fail "a line is no JSON"
engine logs mounted 2>&1 | grep -q '^{.*"message"' || fail "no line of its log is JSON"

# Kubernetes ends a pod like this: the mount goes with its container.
engine stop --time 15 mounted >/dev/null
[ "$(engine inspect --format '{{.State.ExitCode}}' mounted)" = 0 ] || fail "it ended with $(engine inspect --format '{{.State.ExitCode}}' mounted)"
mountpoint -q "$work/shared/data" && fail "the mount outlived its container"
# Killed, it leaves a dead mount; the next one takes its place, with the cache of before.
engine rm mounted >/dev/null
mount_it
engine kill --signal KILL mounted >/dev/null
engine wait mounted >/dev/null 2>&1 || true
engine rm --force mounted >/dev/null
mount_it
[ "$(sha256sum <"$work/shared/data/large")" = "$sum" ] || fail "other bytes after a container that was killed"
engine stop --time 15 mounted >/dev/null
echo "passed: mounted in a container, read on the host and in another container, ended, killed and mounted again"
