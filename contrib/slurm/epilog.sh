#!/bin/sh
# For `Epilog=` of slurm.conf: takes away what pool.sh left on this node if its job was killed. Slurm has ended the processes of the
# job by then; what is left is a mount without a node, keys in memory, and the cache.
#
# As root, so nothing that the user wrote is believed: a mount goes only if it is one of this user's, and folders have fixed names.
# SCRATCH has to be what STOKER_SCRATCH is in jobs.
SCRATCH=${STOKER_SCRATCH:-/tmp}

case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
keys=/dev/shm/stoker-$SLURM_JOB_ID
if [ -d "$keys" ] && [ ! -L "$keys" ] && [ -f "$keys/dir" ] && [ ! -L "$keys/dir" ]; then
  where=$(head -c 4096 "$keys/dir" | head -n 1 | sed 's/\\/\\134/g; s/ /\\040/g')
  # A line of mountinfo: the mount point is its fifth word; behind the dash stand type, source and options.
  if awk -v where="$where" -v user="user_id=$SLURM_JOB_UID" '
    $5 == where { sub(/.* - /, ""); if ($1 ~ /^fuse/ && index("," $3 ",", "," user ",")) found = 1 }
    END { exit !found }' /proc/self/mountinfo; then
    umount -l "$(head -n 1 "$keys/dir")"
  fi
fi
rm -rf "$keys" "$keys".keys.* "$SCRATCH/stoker-$SLURM_JOB_ID"
exit 0
