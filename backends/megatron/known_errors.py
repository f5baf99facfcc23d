"""Errors that Megatron-LM, PyTorch, NCCL, Open MPI and Singularity print: what they mean and what to do.

One row a pattern (case-insensitive, anywhere in the line). The first row that fits names the error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownError:
    kind: str
    pattern: re.Pattern[str]
    explanation: str
    remedy: str
    ends_job: bool = True  # False: the line reports what another error did, or may be survived


def _row(kind: str, pattern: str, explanation: str, remedy: str, ends_job: bool = True) -> KnownError:
    return KnownError(kind, re.compile(pattern, re.IGNORECASE), explanation, remedy, ends_job)


KNOWN_ERRORS: tuple[KnownError, ...] = (
    _row("out-of-memory", r"OutOfMemoryError|CUDA out of memory", "The GPU's memory is full.",
         "Lower --micro-batch-size, add --recompute-activations, raise TP or PP, or use the distributed optimizer; with much memory "
         "reserved but unallocated, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."),
    _row("nccl-timeout", r"Watchdog caught collective operation timeout|Timeout\(ms\)=\d+", "One rank stopped talking to the others (10 minutes by default).",
         "Look for the first other error; for slow index building or saving raise --distributed-timeout-minutes."),
    _row("duplicate-gpu", r"Duplicate GPU detected", "Two ranks use the same GPU.", "Start as many ranks as GPUs are visible; from core 0.9 on set LOCAL_RANK."),
    _row("nccl", r"unhandled system error|ncclSystemError|ncclRemoteError|ncclInternalError", "NCCL has a network or shared-memory problem.",
         "Run with NCCL_DEBUG=INFO; check the size of /dev/shm, NCCL_SOCKET_IFNAME and InfiniBand."),
    _row("address-in-use", r"Address already in use|EADDRINUSE", "The port is taken by another run or a left-over of one.", "Choose another MASTER_PORT, or end the other process."),
    _row("no-master-address", r"environment variable (?:MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE) expected, but not set", "The ranks were not told where to meet.",
         "Export MASTER_ADDR and MASTER_PORT; with mpirun pass them on with -x."),
    _row("rank-0-unreachable", r"client socket has timed out|The client socket has failed to connect|\bConnection refused\b.*(?:connect|socket|store)",
         "Rank 0 cannot be reached.", "MASTER_ADDR must be the first host's name (not localhost on several nodes); check the firewall."),
    _row("not-enough-slots", r"There are not enough slots available", "mpirun was asked for more ranks than there are slots.", "Give slots=8 a host in the hostfile, or lower --np."),
    _row("local-rank", r"expected local-rank to be the same as rank % device-count", "Ranks are not numbered node by node.", "Map ranks by slot, with the same GPUs visible on each node."),
    _row("invalid-device", r"invalid device ordinal", "There are more ranks than visible GPUs.", "Start as many ranks as GPUs; check CUDA_VISIBLE_DEVICES and singularity's --nv."),
    _row("no-gpu", r"Megatron requires CUDA|No CUDA GPUs are available|Found no NVIDIA driver", "The ranks see no GPU.", "Use `singularity exec --nv`; check the driver with nvidia-smi."),
    _row("no-data", r"One or both of the \.idx and \.bin files cannot be found at the path prefix", "The data set is not where --data-path points.",
         "Give the prefix without suffix, such as ./arxiv_text_document."),
    _row("bad-index", r"bad header, cannot read: |bad version, cannot read", "The .idx is no Megatron index.", "Run the preprocessing again."),
    _row("truncated-data", r"mmap length is greater than file size|buffer is smaller than requested size", "The .bin or .idx is cut off.", "mdk-tui data PREFIX says how much is missing; run the preprocessing again."),
    _row("no-tokenizer-file", r"FileNotFoundError.*(?:vocab\.json|merges\.txt|tokenizer)|assert args\.(?:vocab|merge)_file is not None", "A file of the tokenizer is missing.", "Check --vocab-file and --merge-file."),
    _row("token-out-of-range", r"device-side assert triggered|vectorized_gather_kernel.*index out of bounds|srcIndex < srcSelectDimSize",
         "A token id is beyond the vocabulary: the data was made with another tokenizer.", "Use the same vocabulary for preprocessing and training."),
    _row("vocabulary-mismatch", r"padded_vocab_size value from checkpoint", "The checkpoint has another vocabulary size.", "Use its vocabulary, --make-vocab-size-divisible-by and TP."),
    _row("checkpoint-mismatch", r"value from checkpoint \(.*?\) is not equal to the input argument value", "The model flags differ from the checkpoint's.",
         "Use the flags it was trained with; in torch format TP and PP must match too."),
    _row("scheduler-mismatch", r"OptimizerParamScheduler: class input value", "The learning-rate schedule differs from the checkpoint's, as when --train-iters changed.",
         "Add --override-opt_param-scheduler (use the new values) or --use-checkpoint-opt_param-scheduler (keep the old)."),
    _row("state-mismatch", r"Error\(s\) in loading state_dict for", "The weights have other names or shapes than the model.", "Use the same architecture flags, --use-legacy-models included."),
    _row("batch-arithmetic", r"global batch size \(\d+\) is not divisible by micro batch size", "The batch sizes do not go together.",
         "Choose --global-batch-size as a multiple of micro batch size × data-parallel size."),
    _row("parallel-arithmetic", r"world size \(\d+\) is not divisible by", "The number of ranks does not fit TP × PP × CP.", "Start a multiple of TP × PP × CP ranks."),
    _row("rampup", r"expected no batch-size rampup for iteration-based training", "--rampup-batch-size cannot go with --train-iters.", "Drop the ramp-up, or use --train-samples."),
    _row("training-length", r"expected (?:iteration|sample)-based training", "Options of --train-iters and --train-samples are mixed.", "Use one family of options."),
    _row("nan", r"found NaN in local|Unexpected result nan|found Inf in local", "A loss or gradient became NaN.",
         "Look at the data and the learning rate; when it is always the same node or GPU, take that out."),
    _row("rerun", r"Possible (?:transient|persistent) error!", "A step gave another result when it was repeated: the hardware is suspect.", "Drain the node and resume from the last checkpoint.", ends_job=False),
    _row("missing-script", r"can't open file '[^']*\.py'|No such file or directory: '?[^' ]*pretrain_gpt\.py", "The script is not where python looks.", "Run inside the folder of Megatron-LM."),
    _row("dataset-helper", r"Failed to compile the C\+\+ dataset helper functions", "The data-set helper could not be compiled.", "make, g++ and pybind11 are needed, and a source folder that can be written; build once."),
    _row("max-connections", r"requires setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1", "CUDA_DEVICE_MAX_CONNECTIONS is not set.", "Export CUDA_DEVICE_MAX_CONNECTIONS=1."),
    _row("server-tokenizer", r"get_tokenizer\(\) takes 0 positional arguments but 1 was given", "core_r0.8.0's text server has a known fault: every request fails.",
         "Apply the server fix (mdk-tui setup patches) and restart the server."),
    _row("no-save-interval", r"unsupported operand type\(s\) for %: 'int' and 'NoneType'", "--save was given without --save-interval: the last checkpoint is lost.", "Give --save-interval."),
    _row("bus-error", r"Bus error|exitcode: -7\b|signal 7 \(Bus error\)", "A rank died of a bus error: /dev/shm is too small, or a file system failed under mmap.", "Enlarge /dev/shm."),
    _row("checkpoint-not-empty", r"Checkpoint destination directory .* is not empty", "A left-over of a crashed save is in the way.", "Move that iteration's folder away."),
    _row("bad-tracker", r"ERROR: Invalid metadata file|error parsing metadata file", "The tracker file is damaged.", "Write the iteration of a whole checkpoint into latest_checkpointed_iteration.txt."),
    _row("checkpoint-unreadable", r"could not load the checkpoint\b|Unable to load optimizer from checkpoint|Unable to load rng state from checkpoint", "The checkpoint could not be read.",
         "mdk-tui checkpoints DIR says what is whole; resume from an earlier one."),
    _row("missing-library", r"ModuleNotFoundError: No module named|ImportError: ", "A Python package is missing or broken.", "Use the image of mdk-tui, or install the package in it."),
    _row("disk-full", r"No space left on device|Disk quota exceeded", "The disk or the quota is full.", "Make room: mdk-tui prune DIR --keep N."),
    _row("container", r"FATAL:\s{2,}", "Singularity could not start the container.", "Read the line: a missing .sif or command, --nv, or --fakeroot."),
    _row("no-executable", r"(?:mpirun|prterun) was unable to (?:find|launch) the specified|could not access\s+or execute an executable", "mpirun cannot find the program on a node.", "Give its full path; it must be at the same place on every node."),
    _row("daemon-lost", r"A daemon failed to report back|lost communication with a remote daemon|ORTE has lost communication|PRTE has lost communication", "mpirun lost a node.", "Check that the node answers by SSH; mdk-tui probe names it."),
    _row("rank-killed", r"(?:prterun|mpirun) noticed that process rank \d+ .*exited on|exited on signal \d+", "A rank was killed by a signal.",
         "Signal 9 is the memory killer or the scheduler, 11 a segmentation fault, 15 a termination: see dmesg on that node."),
    _row("mpi-abort", r"MPI_ABORT was invoked on rank", "A rank called MPI_ABORT.", "See that rank's lines."),
    _row("rank-failed", r"(?:prterun|mpirun) detected that one or more processes exited with non-zero status|Primary job\s+terminated normally, but|ChildFailedError|Received 15 death signal", "A rank failed, so the launcher ended the job.", "See the first traceback above."),
)  # fmt: skip

EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Warning|Timeout|Exit)|AssertionError)(?::|$)"
)
TRACEBACK = "Traceback (most recent call last)"


def find_known(line: str) -> KnownError | None:
    """The first row that fits `line`."""
    return next((row for row in KNOWN_ERRORS if row.pattern.search(line)), None)
