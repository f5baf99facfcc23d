"""The batch script of a Slurm job, as text: it can be read, kept, and submitted by hand with `sbatch`."""

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

run=${{1:-}}
{exports}export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MDK_RUN=${{MDK_RUN:-slurm-$SLURM_JOB_ID}}
cd {cwd} || exit 1
[ -z "$run" ] || rm -f "$run/exit.json"

command=({command})
"""
AGAIN = """\
# A job that was requeued goes on from its checkpoint, and never writes over those that are there.
if [ -s {tracker} ]; then
    command=({again})
elif compgen -G {saved} >/dev/null; then
    command=(sh -c {refusal})
fi
"""
BODY = """\

# USR1 (mdk-tui stop) and USR2 (Slurm, before the time limit) make the ranks save and exit; TERM ends them.
why= child=
trap 'why=stop; [ -z "$child" ] || kill -USR1 "$child"' USR1
trap 'why=limit; [ -z "$child" ] || kill -USR1 "$child"' USR2
trap 'why=end; [ -z "$child" ] || kill -TERM "$child"' TERM
"${command[@]}" & child=$!
while kill -0 "$child" 2>/dev/null; do wait "$child"; done   # a trapped signal ends wait early
wait "$child"; status=$?
"""
REQUEUE = """\
if [ "$why" = limit ] && [ "$status" = 0 ] && scontrol requeue "$SLURM_JOB_ID"; then exit 0; fi
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
    """`command` starts the ranks; `again` does once there is a checkpoint in `save`. `requeue`: saved before the time
    limit, the job queues up again by itself."""
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
    words = f"mdk-tui: {save} holds checkpoints, but its {TRACKER} names none: not started, since it would begin anew."
    return AGAIN.format(
        tracker=shlex.quote(f"{save}/{TRACKER}"),
        again=shlex.join(again),
        saved=f"{shlex.quote(glob.escape(save))}'/iter_*'",
        refusal=shlex.quote(f"echo {shlex.quote(words)} >&2; exit 1"),
    )
