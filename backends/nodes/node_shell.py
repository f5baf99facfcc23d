"""The sh script that runs on a node: it starts `node_program`, or does its work itself if there is no python3.

    sh -c SCRIPT mdk-probe PROGRAM QUESTION IMAGE SINGULARITY PATH…         ("" for no image, no singularity)

Without python3 the answer is lines of `mdk-say KEY VALUE`.
"""

from __future__ import annotations

SCRIPT = r"""
program=$1 question=$2 image=$3 singularity=$4; shift 4
if python3 -c 'import sys; sys.exit(sys.version_info < (3, 7))' 2>/dev/null; then exec python3 -I -c "$program" "$question"; fi
say() { printf 'mdk-say %s %s\n' "$1" "$2"; }
echo "mdk-clock $(date +%s.%N)"
say host "$(uname -n)"
if [ -r "$image" ]; then
  size=$(stat -Lc %s "$image") last=0
  [ "$size" -lt 65536 ] || last=$((size / 65536 - 1))
  say image "$size $(for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    dd if="$image" bs=65536 skip=$((n * last / 15)) count=1 2>/dev/null; done | sha256sum | cut -d' ' -f1)"
fi
for path in "$@"; do
  [ ! -e "$path" ] || say path "$path"
  [ ! -w "$path" ] || say writable "$path"
done
for path in "$@" /tmp /dev/shm; do say free "$(df -Pk "$path" 2>/dev/null | awk 'END {print $4}') $path"; done
say mpirun "$(mpirun --version 2>/dev/null | head -n 1)"
say singularity "$(command -v "$singularity")"
nvidia-smi --query-gpu=index,name,memory.total,memory.used,driver_version --format=csv,noheader,nounits 2>/dev/null |
  while read -r line; do say gpu "$line"; done
ip -o -4 addr show up 2>/dev/null | while read -r _ name _ address _; do [ "$name" = lo ] || say interface "$name ${address%/*}"; done
say end ""
"""
