# A data set on all nodes of a Slurm job, whose caches are one, without ssh. For batch scripts, in any POSIX shell:
#
#   . /opt/stoker/slurm/pool.sh
#   stoker_up s3://imagenet/train /data/train --cache-size 500GB    # what `stoker mount` takes may follow
#   srun python3 train.py /data/train
#   stoker_down
#
# The mount point has to be there on each node, or a folder in which the user may make it. STOKER_SCRATCH (/tmp) is a folder of a local
# disk of each node for the cache, STOKER_PORT (7865) where nodes reach each other.
#
# Keys are made in memory of the first node, go to each node by the input of a job step, and are forgotten; Slurm's own
# connections carry them, as they carry the job. Whatever ends the job ends the nodes; epilog.sh takes away what a killed one left.

stoker_up() {
  stoker_set=$1 stoker_dir=$2
  shift 2
  stoker_id=stoker-$SLURM_JOB_ID
  stoker_keys=$(umask 077 && mktemp -d "/dev/shm/$stoker_id.keys.XXXXXX") || return
  stoker_hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || return
  for stoker_host in $stoker_hosts; do
    echo "$stoker_host:${STOKER_PORT:-7865} name=$stoker_host"
  done >"$stoker_keys/members"
  stoker keys --members "$stoker_keys/members" --out "$stoker_keys/keys" --days 30 >/dev/null 2>&1 || return
  for stoker_host in $stoker_hosts; do
    cp "$stoker_keys/members" "$stoker_keys/keys/$stoker_host"
    tar -cf - -C "$stoker_keys/keys/$stoker_host" . |
      srun --overlap --mem=0 -N1 -n1 -w "$stoker_host" sh -c '
        umask 077 && mkdir "/dev/shm/$1" && tar -xf - -C "/dev/shm/$1" && echo "$2" >"/dev/shm/$1/dir" && mkdir -p "$2"
      ' sh "$stoker_id" "$stoker_dir" || { rm -rf "$stoker_keys"; return 1; }
  done
  rm -rf "$stoker_keys"
  # A step that lasts as long as the mounts: they end with it.
  stoker_each sh -c '
    id=$1 scratch=$2 set=$3 dir=$4
    shift 4
    exec stoker mount --cache "$scratch/$id" --members "/dev/shm/$id/members" --listen "$SLURMD_NODENAME" \
      --identity "/dev/shm/$id" "$@" -- "$set" "$dir"
  ' sh "$stoker_id" "${STOKER_SCRATCH:-/tmp}" "$stoker_set" "$stoker_dir" "$@" >/dev/null </dev/null &
  stoker_step=$!
  until stoker_is_mounted; do
    kill -0 "$stoker_step" 2>/dev/null || { wait "$stoker_step"; return 1; }
    sleep 1
  done
}

# A command on all nodes of the job, one process each.
stoker_each() {
  srun --overlap --mem=0 --ntasks-per-node=1 -n "$SLURM_JOB_NUM_NODES" -N "$SLURM_JOB_NUM_NODES" "$@"
}

stoker_is_mounted() {
  stoker_each sh -c '
    where=$(cd "$1" && pwd -P | sed "s/\\\\/\\\\134/g; s/ /\\\\040/g")
    cut -d " " -f 5 /proc/self/mountinfo | grep -qxF -e "$where"
  ' sh "$stoker_dir" 2>/dev/null </dev/null
}

# Slurm kills the processes of a step that is cancelled, so the nodes are told to end before.
stoker_down() {
  stoker_each sh -c 'stoker umount "$1" 2>/dev/null || stoker umount --lazy "$1"' sh "$stoker_dir" </dev/null
  wait "$stoker_step" 2>/dev/null
  stoker_each rm -rf "/dev/shm/$stoker_id" "${STOKER_SCRATCH:-/tmp}/$stoker_id" </dev/null
}
