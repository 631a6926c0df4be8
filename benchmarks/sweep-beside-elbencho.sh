#!/bin/sh
# `stoker bench sweep` beside elbencho on the same disk, in turns, because the disk of a shared machine is not the same
# from one minute to the next: writes and reads of 128 KiB files, reads of 16 MiB files, random reads of 128 KiB; 4
# threads, direct I/O, 1 GiB each. Both read what they have just written in the same way, and of both a write ends when the
# file is closed, not when it is safe: elbencho has no option for that. One thing is not alike: elbencho's random reads may
# come to a block twice, those of the sweep come to each once.
#
#   benchmarks/sweep-beside-elbencho.sh FOLDER [ROUNDS]
#
# Needs elbencho, jq and 2 GiB in FOLDER; ELBENCHO and STOKER name the programs. Prints each round, then the medians of
# both, in bytes and in operations a second, and of the ratio of a round.
set -eu
folder=$(mktemp -d "$1/beside-elbencho-XXXXXX")
rounds=${2:-7}
stoker=${STOKER:-target/release/stoker}
elbencho=${ELBENCHO:-elbencho}
trap 'rm -rf "$folder"' EXIT INT TERM
mkdir "$folder/elbencho" "$folder/stoker"

by_elbencho() { # phase of its JSON, size, block of writes, block of reads, files of a thread, more options of the read
  phase=$1 size=$2 write=$3 read=$4 files=$5; shift 5
  rm -f "$folder/result.json"
  run_elbencho -d -w -b "$write"
  [ "$phase" = WRITE ] || run_elbencho -r -b "$read" "$@"
  run_elbencho -F -D
  jq --arg phase "$phase" 'select(.phase_type == $phase) | .last_done["bytes/s"] | tonumber' "$folder/result.json"
}

run_elbencho() {
  "$elbencho" -t 4 -n 1 -N "$files" -s "$size" --direct --nolive --jsonfile "$folder/result.json" "$@" \
    "$folder/elbencho" > /dev/null
}

by_stoker() { # phase, size, blocks
  "$stoker" bench sweep "$folder/stoker" --sizes "$2" --threads 4 --phases read,random --block "$3" \
    --limit 120s,1GiB --direct --no-fsync --save "$folder/sweep.json" > /dev/null
  jq --arg phase "$1" '.cells[] | select(.phase == $phase) | .bytes_per_second | floor' "$folder/sweep.json"
}

median() { sort -n "$1" | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

compare() { # title, bytes of an operation, function of elbencho's, function of stoker's
  : > "$folder/elbencho.all"; : > "$folder/stoker.all"; : > "$folder/ratio.all"
  for round in $(seq "$rounds"); do
    if [ $((round % 2)) = 0 ]; then theirs=$($3); ours=$($4); else ours=$($4); theirs=$($3); fi
    echo "$theirs" >> "$folder/elbencho.all"; echo "$ours" >> "$folder/stoker.all"
    awk "BEGIN { printf \"%.4f\n\", $ours / $theirs }" >> "$folder/ratio.all"
    printf '%s  round %d  elbencho %d  stoker %d\n' "$1" "$round" "$theirs" "$ours"
  done
  theirs=$(median "$folder/elbencho.all") ours=$(median "$folder/stoker.all")
  printf '%s  median of %d: elbencho %d B/s (%d/s), stoker %d B/s (%d/s), ratio of a round %s\n' "$1" "$rounds" \
    "$theirs" $((theirs / $2)) "$ours" $((ours / $2)) "$(median "$folder/ratio.all")"
}

elbencho_write() { by_elbencho WRITE 128k 128k 128k 2048; }
stoker_write() { by_stoker write 128KiB 128KiB,128KiB; }
elbencho_small() { by_elbencho READ 128k 128k 128k 2048; }
stoker_small() { by_stoker read 128KiB 128KiB,128KiB; }
elbencho_large() { by_elbencho READ 16m 1m 1m 16; }
stoker_large() { by_stoker read 16MiB 1MiB,128KiB; }
elbencho_random() { by_elbencho READ 256m 1m 128k 1 --rand; }
stoker_random() { by_stoker random 256MiB 1MiB,128KiB; }

compare "write 128 KiB files x 4" 131072 elbencho_write stoker_write
compare "read 128 KiB files x 4" 131072 elbencho_small stoker_small
compare "read 16 MiB files x 4" 16777216 elbencho_large stoker_large
compare "random 128 KiB x 4" 131072 elbencho_random stoker_random
