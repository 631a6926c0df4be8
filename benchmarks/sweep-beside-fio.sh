#!/bin/sh
# `stoker bench sweep` beside fio on the same disk, in turns, because the disk of a shared machine is not the same from
# one minute to the next: sequential reads of 16 MiB files and random reads of 128 KiB, 4 threads, direct I/O. Both read
# what they have just written in the same way, because a virtual disk may keep what is new in the memory of its host.
#
#   benchmarks/sweep-beside-fio.sh FOLDER [ROUNDS]
#
# Needs fio, jq and 2 GiB in FOLDER. Prints each round, then the medians of both and of the ratio of a round.
set -eu
folder=$(mktemp -d "$1/beside-fio-XXXXXX")
rounds=${2:-7}
stoker=${STOKER:-target/release/stoker}
trap 'rm -rf "$folder"' EXIT INT TERM
mkdir "$folder/fio" "$folder/stoker"

by_fio() { # name, pattern, block, bytes of a file, files of a thread
  rm -rf "$folder/fio"; mkdir "$folder/fio"
  run_fio "$1" write 1M "$4" "$5" --refill_buffers --fsync_on_close=1 > /dev/null
  run_fio "$1" "$2" "$3" "$4" "$5" | jq '.jobs[0].read.bw_bytes'
}

run_fio() {
  name=$1 pattern=$2 block=$3 bytes=$4 files=$5; shift 5
  fio --name="$name" --directory="$folder/fio" --rw="$pattern" --bs="$block" --filesize="$bytes" --nrfiles="$files" \
    --openfiles=1 --file_service_type=sequential --numjobs=4 --thread --direct=1 --ioengine=psync --group_reporting \
    --fallocate=none --invalidate=0 --output-format=json "$@"
}

by_stoker() { # phase, sizes, blocks
  "$stoker" bench sweep "$folder/stoker" --sizes "$2" --threads 4 --phases "$1" --block "$3" --limit 1GiB --direct \
    --save "$folder/sweep.json" > /dev/null
  jq --arg phase "$1" '.cells[] | select(.phase == $phase) | .bytes_per_second | floor' "$folder/sweep.json"
}

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

compare() { # title, function of fio's, function of stoker's
  : > "$folder/fio.all"; : > "$folder/stoker.all"; : > "$folder/ratio.all"
  for round in $(seq "$rounds"); do
    if [ $((round % 2)) = 0 ]; then fio=$($2); stoker_found=$($3); else stoker_found=$($3); fio=$($2); fi
    echo "$fio" >> "$folder/fio.all"; echo "$stoker_found" >> "$folder/stoker.all"
    awk "BEGIN { printf \"%.4f\n\", $stoker_found / $fio }" >> "$folder/ratio.all"
    printf '%s  round %d  fio %d  stoker %d\n' "$1" "$round" "$fio" "$stoker_found"
  done
  printf '%s  median of %d: fio %d B/s, stoker %d B/s, ratio of a round %s\n' "$1" "$rounds" \
    "$(median "$folder/fio.all")" "$(median "$folder/stoker.all")" "$(median "$folder/ratio.all")"
}

fio_sequential() { by_fio sequential read 1M 16M 16; }
stoker_sequential() { by_stoker read 16MiB 1MiB; }
fio_random() { by_fio random randread 128k 256M 1; }
stoker_random() { by_stoker random 256MiB 1MiB,128KiB; }

compare "read 16 MiB x 4" fio_sequential stoker_sequential
compare "random 128 KiB x 4" fio_random stoker_random
