//! What runs on a host, for any POSIX `sh`. Each stands behind [`HEAD`], which stands behind `dir`, `at` and `id`.
//!
//! Invariants: facts are written before what they tell of is made, all at once by one rename; they go last; no folder is
//! removed with what is in it that hasn't the mark of this pool.

/// Where a pool writes down what is its own: `place` (the mount point without links), `own` (the folder of its cache),
/// `hash` (its program), `secrets`, `handed` (names of those), `made` (folders that were not there, the deepest first), `members`,
/// `token` (who brought it up). What is about to be there is needed too: `hash` stands before the program is looked for.
pub const HEAD: &str = r#"
unset XDG_RUNTIME_DIR
base="$HOME/.cache/stoker-pools"
pool="$base/$id"
mark="stoker pool $id"
own="$pool"
[ -z "$at" ] || own="$at/stoker-pool-$id"
secrets="/dev/shm/stoker-pool-$(id -u)-$id"
there_is_a_pool() { [ -d "$pool" ] || { echo "there is no pool at $dir" >&2; exit 1; }; }
# By its program and its cache folder: a number may be another's after a restart.
nodes() {
  ls -l /proc/[0-9]*/exe 2>/dev/null | grep -F -e "-> $bin/stoker" | sed 's|.* /proc/\([0-9]*\)/exe -> .*|\1|' |
    while read -r pid; do
      if tr '\0' '\n' 2>/dev/null </proc/$pid/cmdline | grep -qxF -e "$own/cache"; then echo $pid; fi
    done
}
forget_secrets() {
  if [ "$(stat -c '%u %a %F' "$secrets" 2>/dev/null)" = "$(id -u) 700 directory" ] &&
    [ "$(cat "$secrets/mark" 2>/dev/null)" = "$mark" ]; then rm -rf "$secrets"; fi
}
is_mounted() {
  where=$(printf %s "$1" | sed 's/\\/\\134/g; s/ /\\040/g')
  cut -d ' ' -f 5 /proc/self/mountinfo | grep -qxF -e "$where"
}
"#;

/// `hash` is that of the program for this host.
pub const LOOK: &str = r#"
say() { echo "$1 $2"; }
say system "$(uname -s)"
say arch "$(uname -m)"
say now "$(date +%s)"
[ -w /dev/fuse ] && say fuse yes
{ [ "$(id -u)" = 0 ] || command -v fusermount3 >/dev/null; } && say mounts yes
command -v sha256sum >/dev/null && say sha256sum yes
[ -d "$pool" ] && say pool yes
if is_mounted "$dir"; then say mounted yes
elif [ -d "$dir" ] && [ -n "$(ls -A "$dir")" ]; then say full yes; fi
there="${at:-$HOME}"
while [ ! -d "$there" ]; do there=$(dirname "$there"); done
say type "$(stat -f -c %T "$there")"
say free "$(df -Pk "$there" | awk 'NR == 2 { print $4 }')"
[ -f "$base/bin/$hash/stoker" ] && [ "$(sha256sum 2>/dev/null <"$base/bin/$hash/stoker")" = "$hash  -" ] && say program yes
:
"#;

/// `hash` and `members` as above. Says `bring` if the program is not there.
pub const PREPARE: &str = r#"
set -eu
made=
plan() {
  each=$1
  while [ ! -d "$each" ]; do
    made="$made$each
"
    each=$(dirname "$each")
  done
}
plan "$dir"
[ -z "$at" ] || plan "$at"
plan "$base"
# What is run from there nobody else may change.
(umask 077; mkdir -p "$base")
if [ -e "$pool" ]; then echo 'a pool has this mount point already' >&2; exit 1; fi
new=$(mktemp -d "$base/.new.XXXXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP INT TERM PIPE
echo "$mark" >"$new/mark"
echo "$hash" >"$new/hash"
echo "$own" >"$new/own"
echo "$secrets" >"$new/secrets"
echo "$token" >"$new/token"
printf %s "$made" >"$new/made"
printf %s "$members" >"$new/members"
echo "$dir" >"$new/place"
mv "$new" "$pool"
# Into the folder of another one that has just come.
if [ -e "$pool/${new##*/}" ]; then rm -rf "$pool/${new##*/}"; echo 'a pool has this mount point already' >&2; exit 1; fi
mkdir -p "$dir"
(cd "$dir" && pwd -P) >"$pool/place.new"
mv "$pool/place.new" "$pool/place"
umask 077
if [ -n "$at" ]; then
  mkdir -p "$at"
  mkdir "$own"
  echo "$mark" >"$own/mark"
fi
(cd "$own" && pwd -P) >"$pool/own.new"
mv "$pool/own.new" "$pool/own"
[ -x "$base/bin/$hash/stoker" ] || echo bring
"#;

/// The program comes by standard input.
pub const BRING: &str = r#"
set -eu
umask 077
there_is_a_pool
bin="$base/bin/$(cat "$pool/hash")"
mkdir -p "$bin"
new=$(mktemp "$bin/.new.XXXXXXXX")
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM PIPE
cat >"$new"
[ "$(sha256sum <"$new")" = "$(cat "$pool/hash")  -" ] || { echo 'the program that arrived is not the one that was sent' >&2; exit 1; }
chmod 755 "$new"
mv "$new" "$bin/stoker"
"#;

/// Files by standard input, each by `take NAME BYTES`, then `keep`. They lie in memory, and nobody else may read them.
/// `first` is `yes` if there must be none yet.
pub const SECRETS: &str = r#"
set -eu
umask 077
there_is_a_pool
[ -d /dev/shm ] && [ "$(stat -f -c %T /dev/shm)" = tmpfs ] || { echo 'there is no /dev/shm to keep secrets in' >&2; exit 1; }
[ "$(cat "$pool/secrets")" = "$secrets" ]
own=$(cat "$pool/own") bin="$base/bin/$(cat "$pool/hash")"
# A script may outlive its connection, and the pool: who takes that away looks for secrets after it as well.
trap '[ -d "$pool" ] || { forget_secrets; echo "the pool was taken away meanwhile" >&2; exit 1; }' EXIT
trap 'exit 1' HUP INT TERM PIPE
ended() { echo 'its node has ended: `stoker down`, then `stoker up` again' >&2; exit 1; }
[ -n "$first" ] || [ -n "$(nodes)" ] || ended
# systemd removes what a user has there with the last login (RemoveIPC).
if [ -n "$first" ] || [ ! -e "$secrets" ]; then
  mkdir -m 700 "$secrets"
  echo "$mark" >"$secrets/mark"
fi
# Anybody may make something of this name there.
[ "$(stat -c '%u %a %F' "$secrets" 2>/dev/null)" = "$(id -u) 700 directory" ] || ended
names=
take() {
  dd bs=1 count="$2" of="$secrets/.new.$1" 2>/dev/null
  [ "$(wc -c <"$secrets/.new.$1")" -eq "$2" ] || { echo "$1 did not arrive whole" >&2; exit 1; }
  names="$names $1"
}
keep() {
  for each in $names; do mv -f "$secrets/.new.$each" "$secrets/$each"; done
  [ -z "$first" ] || echo $names >"$pool/handed"
}
"#;

/// Keep the authority that was trusted last before the new one. Nothing is kept where members have no keys.
pub const TRUST: &str = r#"
if grep -qwF node.key "$pool/handed"; then
  if [ -f "$secrets/ca.pem" ]; then
    awk '/BEGIN/ { last = "" } { last = last $0 "\n" } END { printf "%s", last }' "$secrets/ca.pem" >"$secrets/.new.both"
    cat "$secrets/.new.ca.pem" >>"$secrets/.new.both"
    mv -f "$secrets/.new.both" "$secrets/.new.ca.pem"
  fi
  keep
  echo keys
else
  rm -f "$secrets/.new.ca.pem"
fi
if grep -qwF credentials "$pool/handed"; then echo credentials; fi
"#;

pub const CALL: &str = r#"
set -eu
there_is_a_pool
hash=$(cat "$pool/hash")
own=$(cat "$pool/own")
bin="$base/bin/$hash"
"#;

/// Credentials that were handed over are those of the node alone.
pub const START: &str = r#"
# Anybody may make something of this name once it is gone.
if [ "$(stat -c '%u %a %F' "$secrets" 2>/dev/null)" != "$(id -u) 700 directory" ]; then
  echo 'what was handed over is gone: `stoker up` again' >&2; exit 1
fi
[ ! -f "$secrets/credentials" ] || export AWS_SHARED_CREDENTIALS_FILE="$secrets/credentials"
"#;

pub const SOME_FILE: &str = r#"
cd "$dir" && timeout 30 find . -type f -size -131072 -print 2>/dev/null | head -n 1
"#;

/// `lazy` is `yes` if open files don't matter; with `only` it ends once the node has ended; with a `token` nothing is done to a
/// pool that somebody else brought up.
pub const TAKE_AWAY: &str = r#"
gone="$base/.gone.$id"
# What goes at the end had begun before.
facts="$pool"
[ -d "$pool" ] || facts="$gone"
[ -d "$facts" ] || { forget_secrets; exit 0; }
fact() { cat "$facts/$1" 2>/dev/null; }
[ -z "$token" ] || [ "$(fact token)" = "$token" ] || exit 0
place=$(fact place) own=$(fact own) hash=$(fact hash) secrets=$(fact secrets) made=$(fact made)
bin="$base/bin/$hash" was=$(fact token)
# Another one may have taken it away since, and somebody brought a new one up: that stays.
still() {
  now=$(fact token)
  if [ -n "$now" ] && [ "$now" != "$was" ]; then echo taken; exit 0; fi
}
if [ -d "$pool" ]; then
[ "$(fact mark)" = "$mark" ] || { echo "this folder is no pool's: $pool" >&2; exit 1; }
if is_mounted "$place"; then
  said=$("$bin/stoker" umount "$place" 2>&1) ||
    if [ -n "$lazy" ]; then
      "$bin/stoker" umount --lazy "$place" 2>/dev/null || fusermount3 -uz "$place" 2>/dev/null || umount -l "$place"
    fi
  if is_mounted "$place"; then echo "$said" >&2; exit 1; fi
fi
# Who held its mounts may have started another one before it was killed itself.
for name in 0 TERM KILL KILL; do
  pids=$(nodes)
  still
  [ -n "$pids" ] || break
  kill -$name $pids 2>/dev/null
  tenths=0
  while [ $tenths -lt 80 ] && [ -n "$(nodes)" ]; do sleep 0.1; tenths=$((tenths + 1)); done
done
[ -z "$(nodes)" ] || { echo 'its node does not end' >&2; exit 1; }
[ -z "$only" ] || exit 0
for each in "$own" "$secrets"; do
  still
  if [ "$each" -ef "$pool" ] || [ ! -d "$each" ]; then continue; fi
  if [ "$(cat "$each/mark" 2>/dev/null)" = "$mark" ]; then rm -rf "$each"; else rmdir "$each" 2>/dev/null; fi
  [ ! -d "$each" ] || { echo "this could not be removed: $each" >&2; exit 1; }
done
# Sockets of nodes that were killed go when somebody looks.
"$bin/stoker" status >/dev/null 2>&1
still
rm -rf "$gone"
# Unless somebody else takes it away as well.
mv "$pool" "$gone" 2>/dev/null || [ ! -d "$pool" ] || { echo "this could not be removed: $pool" >&2; exit 1; }
[ -d "$pool" ] || forget_secrets
fi
# Homes may be shared: whoever is the last to need the program removes it, unless somebody comes to need it meanwhile.
is_needed() { cat "$base"/*/hash 2>/dev/null | grep -qxF -e "$hash"; }
if [ -n "$hash" ] && ! is_needed && mv "$bin" "$base/.gone.bin.$id" 2>/dev/null; then
  if is_needed && [ ! -e "$bin" ]; then mv "$base/.gone.bin.$id" "$bin"; fi
fi
rm -rf "$base/.gone.bin.$id"
# Of a connection that broke.
find "$base" -maxdepth 3 -name '.new.*' -mmin +60 -exec rm -rf {} + 2>/dev/null
rm -rf "$gone" || exit 1
case $(id -u) in 0) sockets=/run/stoker;; *) sockets="${TMPDIR:-/tmp}/stoker-$(id -u)";; esac
[ -z "${STOKER_RUNTIME_DIR:-}" ] || sockets="$STOKER_RUNTIME_DIR/stoker"
rmdir "$base/bin" "$base" "$sockets" 2>/dev/null
# What another pool came to use, that one takes away.
heir=$(ls -d "$base"/*/mark 2>/dev/null | head -n 1)
printf '%s\n' "$made" | while IFS= read -r each; do
  [ -n "$each" ] && [ -d "$each" ] || continue
  rmdir "$each" 2>/dev/null || [ -z "$heir" ] || printf '%s\n' "$each" >>"${heir%/mark}/made"
done
echo taken
"#;
