"""Lines as core_r0.8.0 prints them, for tests that need a log of their own."""

from __future__ import annotations

from pathlib import Path

LOGS = Path(__file__).parent.parent / "data" / "logs"
WORLD = "using world size: 2, data-parallel size: 2, context-parallel size: 1 tensor-model-parallel size: 1, pipeline-model-parallel size: 1 \n"
DONE = "[after training is done] datetime: 2026-11-30 10:00:00 \n"
FLOOD = "[INFO     | DotProductAttention]: Running with FusedAttention backend (sub-backend 1)\n"


def iteration(
    number: int,
    *,
    loss: float | None = 2.0,
    total: int = 1000,
    ms: float = 1000.0,
    time: str | None = None,
    skipped: int = 0,
) -> str:
    """An iteration line with its newline. Without `time` it is stamped a second an iteration after 09:00."""
    stamp = time or f"2026-11-30 {9 + number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    lm_loss = "" if loss is None else f" lm loss: {loss:.6E} |"
    return (
        f" [{stamp}] iteration {number:8d}/{total:8d} | consumed samples: {number * 32:12d} |"
        f" elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.000000E-04 | global batch size:    32 |{lm_loss}"
        f" loss scale: 1.0 | grad norm: 1.500 | number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |\n"
    )


def iterations(first: int, last: int) -> str:
    return "".join(iteration(number, loss=2.0 + 1 / number) for number in range(first, last + 1))


def arguments(**values: object) -> str:
    """The block that rank 0 prints at the start."""
    rows = "".join(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in values.items())
    return f"------------------------ arguments ------------------------\n{rows}-------------------- end of arguments ---------------------\n"
