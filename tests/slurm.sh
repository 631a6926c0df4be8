#!/bin/bash
# The recipe of contrib/slurm on a real Slurm: three nodes on this machine, each with mounts, memory folders and an address of its
# own, and a folder that is served as a bucket. As root, with munge, slurmctld, slurmd and slurm-client: `make build && bash tests/slurm.sh`.
set -eu
for program in munged slurmctld slurmd srun sbatch unshare; do
  command -v "$program" >/dev/null || { echo "SKIPPED: there is no $program here (apt install slurmctld slurmd slurm-client munge)"; exit 0; }
done
[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] || { echo "SKIPPED: only root can make machines of one, and they need /dev/fuse"; exit 0; }

here=$(cd "$(dirname "$0")/.." && pwd)
stoker=${STOKER:-$here/target/release/stoker}
work=$(mktemp -d /tmp/stoker-slurm.XXXXXX)
pids=
end() {
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  for pid in $pids; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap end EXIT
fail() { echo "FAILED: $*"; tail -n 20 "$work"/job.out "$work"/killed.out "$work"/ctld.log "$work"/n?.out 2>/dev/null; exit 1; }

# A bucket with one file that says what it is and one that is longer than a stripe.
mkdir -p "$work/bucket/train/deep" "$work/bin" "$work/on"
ln -s "$stoker" "$work/bin/stoker"
export PATH="$work/bin:$PATH"
echo first >"$work/bucket/train/first"
head -c 40000000 /dev/urandom >"$work/bucket/train/deep/second"
sum=$(sha256sum <"$work/bucket/train/deep/second")
stoker emulate --bucket bucket "$work/bucket" --listen 127.0.0.1:17100 >"$work/emulate.out" 2>&1 &
pids="$pids $!"

head -c 1024 /dev/urandom >"$work/munge.key"
chmod 400 "$work/munge.key"
munged -F --force --key-file="$work/munge.key" --socket="$work/munge.sock" --pid-file="$work/munge.pid" \
  --log-file="$work/munge.log" --seed-file="$work/munge.seed" >"$work/munge.out" 2>&1 &
pids="$pids $!"
host=$(hostname -s)
cat >"$work/slurm.conf" <<CONF
ClusterName=stand
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=17000
AuthInfo=socket=$work/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/slurmd-%n.log
Epilog=$work/epilog.sh
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=15
$(for n in 1 2 3; do echo "NodeName=n$n NodeHostname=$host NodeAddr=127.0.0.1 Port=1700$n CPUs=1 State=UNKNOWN"; done)
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
# The three have one folder for caches, which is that of each node elsewhere.
printf '#!/bin/sh\nSTOKER_SCRATCH=%s/on/$SLURMD_NODENAME exec %s/contrib/slurm/epilog.sh\n' "$work" "$here" >"$work/epilog.sh"
chmod +x "$work/epilog.sh"
mkdir "$work/state"
export SLURM_CONF=$work/slurm.conf
slurmctld -D >"$work/ctld.out" 2>&1 &
pids="$pids $!"
printf '127.0.0.1 localhost %s\n127.0.0.11 n1\n127.0.0.12 n2\n127.0.0.13 n3\n' "$host" >"$work/names"
for n in n1 n2 n3; do
  mkdir -p "$work/on/$n"
  unshare --mount --propagation private sh -c '
    mount -t tmpfs none /dev/shm && mkdir -p /run/stoker && mount -t tmpfs -o mode=700 none /run/stoker && mount --bind "$1/names" /etc/hosts
    mkdir -p "$1/scratch" && mount --bind "$1/on/$2" "$1/scratch" && exec slurmd -D -N "$2"
  ' sh "$work" "$n" >"$work/$n.out" 2>&1 &
  pids="$pids $!"
done
mkdir -p "$work/scratch"
for _ in $(seq 60); do [ "$(sinfo -h -o %D -t idle 2>/dev/null)" = 3 ] && break; sleep 0.5; done
[ "$(sinfo -h -o %D -t idle)" = 3 ] || fail "three nodes are not idle"

cat >"$work/job.sh" <<'JOB'
#!/bin/bash
. "$HERE/contrib/slurm/pool.sh"
export STOKER_SCRATCH=$WORK/scratch
stoker_up s3://bucket/train "$WORK/mnt/train set" --endpoint http://127.0.0.1:17100 --region us-east-1 --anonymous || exit 9
srun --overlap --ntasks-per-node=1 sh -c 'sha256sum <"$WORK/mnt/train set/deep/second"; cat "$WORK/mnt/train set/first"'
# A short line each, so that those of several nodes don't mix.
srun --overlap --ntasks-per-node=1 sh -c 'stoker status --json |
  sed "s/.*\"store\":{[^}]*\"bytes\":\([0-9]*\).*\"encrypted\":\([a-z]*\).*/\1 \2/"' >"$WORK/status.out"
srun --overlap --ntasks-per-node=1 sh -c 'stat -c "%a %n" /dev/shm/stoker-$SLURM_JOB_ID/node.key; ls /dev/shm/stoker-$SLURM_JOB_ID' >"$WORK/keys.out"
[ -z "$STAYS" ] || { touch "$WORK/up"; sleep 600; }
stoker_down
JOB
export HERE=$here WORK=$work STAYS=
left() {
  for n in n1 n2 n3; do
    srun -N1 -n1 -w "$n" sh -c 'ls -d /dev/shm/stoker-* "$WORK"/scratch/stoker-* 2>/dev/null
      grep -F "$WORK/mnt" /proc/self/mountinfo; for each in /proc/[0-9]*; do
      [ "$(readlink "$each/exe")" = "$(readlink -f "$WORK/bin/stoker")" ] && tr "\0" " " <"$each/cmdline" | grep -F "$WORK/scratch"; done; true'
  done
}

timeout 120 sbatch -W -N3 --ntasks-per-node=1 -o "$work/job.out" "$work/job.sh" >/dev/null || fail "the job"
[ "$(grep -cF "$sum" "$work/job.out")" = 3 ] && [ "$(grep -cx first "$work/job.out")" = 3 ] || fail "what the nodes read"
[ "$(grep -cx '[0-9]* true' "$work/status.out")" = 3 ] || fail "they are no cluster, or an unencrypted one"
[ "$(grep -c '^600 ' "$work/keys.out")" = 3 ] && ! grep -q 'ca.key' "$work/keys.out" || fail "their keys"
bytes=$(awk '{ sum += $1 } END { print sum }' "$work/status.out")
[ "$bytes" -lt 40100000 ] || fail "$bytes bytes left the store for 40000006 of the set"
left=$(left)
[ -z "$left" ] || fail "this is left: $left"
echo "a job reads the set on all nodes ($bytes bytes of 40000006 left the store, listings too), and nothing is left: ok"

export STAYS=yes
job=$(sbatch --parsable -N3 --ntasks-per-node=1 -o "$work/killed.out" "$work/job.sh")
for _ in $(seq 240); do [ -e "$work/up" ] && break; sleep 0.5; done
[ -e "$work/up" ] || fail "the second job"
scancel "$job"
for _ in $(seq 120); do [ "$(sinfo -h -o %D -t idle 2>/dev/null)" = 3 ] && break; sleep 0.5; done
left=$(left)
[ -z "$left" ] || fail "of a job that was cancelled this is left: $left"
echo "of a job that is cancelled nothing is left: ok"
echo "2 passed, 0 failed"
