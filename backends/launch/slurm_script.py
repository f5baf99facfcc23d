"""The batch script of a Slurm job. It can also be submitted by hand with `sbatch`."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Mapping, Sequence

from backends.runs.checkpoints import TRACKER

HEAD = """\
#!/bin/bash
# {title}
{directives}
# By hand: sbatch --output=LOG THIS_FILE. mdk-tui names its run folder as the one argument: the exit code goes there.

run=${{1:-}} why= child=
# USR1 (mdk-tui stop) and USR2 (Slurm, before the time limit) make the ranks save and exit; TERM ends them.
pass_on() {{
    [ -n "$why" ] && [ -n "$child" ] || return 0
    if [ "$why" = end ]; then kill -TERM "$child"; else kill -USR1 "$child"; fi
}}
trap 'why=stop; pass_on' USR1
trap '[ "$why" = stop ] || why=limit; pass_on' USR2   # a run that is being stopped is not requeued
trap 'why=end; pass_on' TERM

{exports}export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MDK_RUN=${{MDK_RUN:-slurm-$SLURM_JOB_ID}}
cd {cwd} || exit 1
[ -z "$run" ] || rm -f "$run/exit.json"

command=({command})
"""
AGAIN = """\
# A requeued job continues from its checkpoint and never overwrites existing ones.
if [ -s {tracker} ]; then
    command=({again})
elif compgen -G {saved} >/dev/null; then
    command=(sh -c {refusal})
fi
"""
BODY = """\

"${command[@]}" & child=$!
pass_on   # a signal that came before the ranks were started
while kill -0 "$child" 2>/dev/null; do wait "$child"; done   # a trapped signal ends wait early
trap '' USR1 USR2 TERM   # or one that comes now would be the status of the last wait
wait "$child"; status=$?
"""
# 138 = 128 + SIGUSR1. Two such ends in a row are no accident: the job would requeue for ever and never train.
REQUEUE = """\
early=${run:+$run/signalled-early}
if [ "$why" = limit ] && [ "$status" = 0 ]; then
    [ -z "$early" ] || rm -f "$early"
    scontrol requeue "$SLURM_JOB_ID" && exit 0
elif [ "$why" = limit ] && [ "$status" = 138 ]; then
    echo "mdk-tui: the signal before the time limit ended the ranks: they could not take it yet, and nothing was saved." >&2
    [ -n "$early" ] && [ ! -e "$early" ] && touch "$early" && scontrol requeue "$SLURM_JOB_ID" && exit 0
    echo "mdk-tui: not requeued: set a longer time or a smaller save_minutes in [slurm]." >&2
fi
"""
TAIL = """\
if [ -n "$run" ]; then
    printf '{"exit_code": %d, "signal": null, "time": %d}\\n' "$status" "$(date +%s)" > "$run/exit.json.part" &&
        mv "$run/exit.json.part" "$run/exit.json"
fi
exit "$status"
"""


def batch_script(
    *,
    title: str,
    options: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    command: Sequence[str],
    again: Sequence[str],
    save: str | None,
    requeue: bool,
) -> str:
    """`command` starts the ranks, or `again` once `save` holds a checkpoint. `requeue`: after it has saved before its time
    limit, the job requeues itself."""
    head = HEAD.format(
        title=" ".join(title.split()),
        directives="\n".join(f"#SBATCH {option}" for option in options),
        exports="".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items()),
        cwd=shlex.quote(cwd),
        command=shlex.join(command),
    )
    goes_on = _goes_on(save, again) if save else ""
    return f"{head}{goes_on}{BODY}{REQUEUE if requeue else ''}{TAIL}"


def _goes_on(save: str, again: Sequence[str]) -> str:
    words = f"mdk-tui: {save} holds checkpoints, but its {TRACKER} names none. Not started: the training would begin anew."
    return AGAIN.format(
        tracker=shlex.quote(f"{save}/{TRACKER}"),
        again=shlex.join(again),
        saved=f"{shlex.quote(glob.escape(save))}'/iter_*'",
        refusal=shlex.quote(f"echo {shlex.quote(words)} >&2; exit 1"),
    )
