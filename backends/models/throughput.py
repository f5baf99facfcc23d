"""How fast a GPU trains, to estimate times before a run: measured if a preset says so, else assumed; the estimate says which.

TFLOP/s a GPU as Megatron prints them: operations of the model, recomputation not counted. The tutorial's logs of the 7B
recipe in FP8 agree with its formula at sequence 4096 on 16 GPUs (802 TFLOP/s, 14.2 s an iteration) and at 2048 on 8
(875 TFLOP/s, 12.1 s; the recipe's 4096 would take 26.0 s there): 41 and 44 % of an H100's peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backends.models.configuration import Configuration

SHARE = 0.4  # share of the peak that large models reach
# Full recomputation runs the forward pass, a third of the work, once more, which Megatron's count leaves out.
FULL_RECOMPUTATION = 0.75


@dataclass(frozen=True, slots=True)
class Peak:
    """Dense TFLOP/s by NVIDIA's data sheets. `fp8` is None where the GPU has none."""

    fp8: float | None
    half: float
    full: float  # TF32, or FP32 on GPUs without it


# By a part of the GPU's name; if several match, the longest counts.
PEAKS: Mapping[str, Peak] = {
    "H100": Peak(1979, 989.5, 495),
    "H200": Peak(1979, 989.5, 495),
    "GH200": Peak(1979, 989.5, 495),
    "H100 PCIe": Peak(1513, 756.5, 378),
    "H100 NVL": Peak(1671, 835.5, 418),
    "H20": Peak(296, 148, 74),
    "B200": Peak(4500, 2250, 1100),
    "L40S": Peak(733, 362, 183),
    "A100": Peak(None, 312, 156),
    "A800": Peak(None, 312, 156),
    "V100": Peak(None, 125, 15.7),
}
USUAL = "H100"


@dataclass(frozen=True, slots=True)
class Throughput:
    """TFLOP/s a GPU. `source` says where the number is from: `as RUN had it`, `40 % of the FP8 peak of H100`."""

    value: float
    source: str
    measured: bool = True

    @property
    def words(self) -> str:
        return f"{self.value:.3g} TFLOP/s a GPU ({'' if self.measured else 'assumed: '}{self.source})"


def kind_of(gpu_name: str | None) -> str | None:
    """The key of PEAKS for what the driver calls a GPU ("NVIDIA A100-SXM4-80GB"); None for one that is not known."""
    found = [kind for kind in PEAKS if kind in (gpu_name or "")]
    return max(found, key=len, default=None)


def assumed_throughput(config: Configuration, gpu_name: str | None = None) -> Throughput:
    """Where none was measured: a share of the peak of this GPU, or of the usual one."""
    kind = kind_of(gpu_name) or USUAL
    peak = PEAKS[kind]
    if config.fp8 and peak.fp8 is not None:
        speed, precision = peak.fp8, "FP8"
    elif config.fp8 or config.half_precision:
        speed, precision = peak.half, "half-precision"
    else:
        speed, precision = peak.full, "TF32"
    again = FULL_RECOMPUTATION if config.recompute_granularity == "full" else 1.0
    less = ", less the recomputation" if again < 1 else ""
    source = f"{100 * SHARE:.0f} % of the {precision} peak of {kind}{less}"
    return Throughput(speed * SHARE * again, source, measured=False)
