"""Known errors of Megatron-LM, PyTorch, NCCL, launchers and schedulers: what they mean and what to do.

Each row is one error. Its phrases are in lower case and may occur anywhere in the lower-cased line; `*` stands for any
text. They contain no digits, because lines that differ in numbers only must be recognised alike. The first row that fits
names the error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownError:
    """A row of the table of known errors. A line matches if it contains one of the phrases."""

    kind: str
    phrases: tuple[tuple[str, ...], ...]  # each phrase as the pieces between its stars
    explanation: str
    remedy: str
    raised: bool = False  # an error only as the exception of a traceback: programs also print it and continue


def _row(kind: str, phrases: list[str], explanation: str, remedy: str, raised: bool = False) -> KnownError:
    return KnownError(kind, tuple(tuple(p.split("*")) for p in phrases), explanation, remedy, raised)


KNOWN_ERRORS: tuple[KnownError, ...] = (
    _row("out-of-memory", ["outofmemoryerror", "cuda out of memory", "hip out of memory", "npu out of memory", "cuda error: out of memory", "hip error: out of memory", "cublas_status_alloc_failed"], "The GPU's memory is full.",
         "Lower --micro-batch-size, add --recompute-activations, raise TP or PP, or use the distributed optimizer; with much memory "
         "reserved but unallocated, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."),
    _row("gpu-fault", ["uncorrectable ecc error", "cudaerroreccuncorrectable", "uncorrectable nvlink error", "nvrm: xid", "fallen off the bus"], "A GPU, its memory or its links failed, says the driver.",
         "Take that node out and resume from the last checkpoint; dmesg and nvidia-smi -q on the node say more."),
    _row("nccl-timeout", ["watchdog caught collective operation timeout", "timeout(ms)=", "heartbeat monitor timed out", "timed out waiting *ms for recv", "timed out waiting *ms for send"], "One rank stopped talking to the others (10 minutes by default).",
         "Look for the first other error; for slow index building or saving raise --distributed-timeout-minutes."),
    _row("infiniband", ["got completion *vendor err", "async fatal event on", "got async event : local catastrophic", "transport retry count exceeded", "call to ibv_reg_mr", "call to ibv_create"], "A network card or a link between nodes failed (InfiniBand or RoCE).",
         "Check the links of the nodes that the line names (ibstat, ibqueryerrors, dmesg) and `ulimit -l`; NCCL_IB_HCA chooses the cards, NCCL_IB_TIMEOUT gives a slow fabric more time."),
    _row("duplicate-gpu", ["duplicate gpu detected"], "Two ranks use the same GPU.", "Start as many ranks as GPUs are visible; from core 0.9 on set LOCAL_RANK."),
    _row("nccl", ["unhandled system error", "ncclsystemerror", "ncclremoteerror", "ncclinternalerror", "ncclunhandledcudaerror", "ncclinvalidusage", "unhandled cuda error, nccl", "unhandled cuda error (run", "distbackenderror"], "NCCL has a network or shared-memory problem.",
         "Run with NCCL_DEBUG=INFO; check the size of /dev/shm, NCCL_SOCKET_IFNAME and InfiniBand."),
    _row("hccl", ["hccl function error", "hccl error in", "dist call hccl api failed", "ops function error: hccl", "getting socket times out"], "Ranks on NPUs lost each other (HCCL).",
         "Look for the first other error; for a slow start raise HCCL_CONNECT_TIMEOUT, for slow steps HCCL_EXEC_TIMEOUT."),
    _row("address-in-use", ["address already in use", "eaddrinuse"], "The port is taken by another run, or by a process left over from one.", "Choose another MASTER_PORT, or end the other process."),
    _row("no-master-address", ["environment variable * expected, but not set"], "The ranks do not know the address of rank 0.",
         "Export MASTER_ADDR and MASTER_PORT; pass them on with -x if mpirun starts the ranks."),
    _row("rank-0-unreachable", ["client socket has timed out", "the client socket has failed to connect", "rendezvousconnectionerror", "cannot be retrieved (gai error"],
         "Rank 0 cannot be reached.", "MASTER_ADDR must be the first host's name (not localhost on several nodes); check the firewall."),
    _row("rank-missing", ["clients joined", "rendezvoustimeouterror", "rendezvousclosederror"], "Not all ranks or nodes joined the rendezvous in time.",
         "Start the job on every node with the same MASTER_ADDR, MASTER_PORT and number of nodes; mdk-tui probe names a node that does not answer."),
    _row("not-enough-slots", ["there are not enough slots available"], "mpirun was asked for more ranks than there are slots.", "Give slots=8 a host in the hostfile, or lower --np."),
    _row("local-rank", ["expected local-rank to be the same as rank % device-count"], "Ranks are not numbered node by node.", "Map ranks by slot, with the same GPUs visible on each node."),
    _row("invalid-device", ["invalid device ordinal"], "There are more ranks than visible GPUs.", "Start as many ranks as GPUs; check CUDA_VISIBLE_DEVICES and singularity's --nv."),
    _row("no-gpu", ["megatron requires cuda", "no cuda gpus are available", "found no nvidia driver", "could not find any nv files on this host", "driver on your system is too old", "cuda driver version is insufficient", "no hip gpus are available", "not compiled with cuda enabled"], "The ranks see no GPU.", "Use `singularity exec --nv`; check the driver with nvidia-smi."),
    _row("gpu-busy", ["devices are busy or unavailable"], "Another process uses the GPU exclusively.", "nvidia-smi shows which one. End processes left over from other runs, or set the GPU's compute mode to default."),
    _row("no-data", ["one or both of the .idx and .bin files cannot be found at the path prefix", "filenotfounderror*.idx", "filenotfounderror*.bin'", "dataset does not exist: "], "The data set is not where --data-path points.",
         "Give the prefix without suffix, such as ./arxiv_text_document."),
    _row("bad-index", ["bad header, cannot read: ", "bad version, cannot read"], "The .idx is no Megatron index.", "Run the preprocessing again."),
    _row("truncated-data", ["mmap length is greater than file size", "buffer is smaller than requested size"], "The .bin or .idx is cut off.", "mdk-tui data PREFIX says how much is missing; run the preprocessing again."),
    _row("no-tokenizer-file", ["filenotfounderror*vocab", "filenotfounderror*merges", "filenotfounderror*tokenizer", "assert args.vocab_file is not none", "assert args.merge_file is not none", "not found: *tokenizer", "couldn't connect to 'https://huggingface.co'", "is not a valid model identifier", "localentrynotfounderror", "access a gated repo"],
         "A file of the tokenizer is missing.", "Check --vocab-file and --merge-file, or --tokenizer-model; a node without internet, or without a Hugging Face token for a gated model, needs the files beforehand."),
    _row("token-out-of-range", ["device-side assert triggered", "vectorized_gather_kernel*index out of bounds", "srcindex < srcselectdimsize", "indexerror: index out of range in self", "&& t < n_classes"],
         "A token id is beyond the vocabulary: the data was made with another tokenizer.", "Use the same vocabulary for preprocessing and training."),
    _row("vocabulary-mismatch", ["padded_vocab_size value from checkpoint"], "The checkpoint has another vocabulary size.", "Use its vocabulary, --make-vocab-size-divisible-by and TP."),
    _row("checkpoint-mismatch", ["value from checkpoint (*) is not equal to the input argument value"], "The model flags differ from the checkpoint's.",
         "Use the flags it was trained with; in torch format TP and PP must match too."),
    _row("scheduler-mismatch", ["optimizerparamscheduler: class input value", "annealinglr: class input value"], "The learning-rate schedule differs from the checkpoint's, as when --train-iters changed.",
         "Add --override-opt_param-scheduler (use the new values) or --use-checkpoint-opt_param-scheduler (keep the old)."),
    _row("state-mismatch", ["error(s) in loading state_dict for", "missing key in checkpoint state_dict", "global shape mismatch for loaded"], "The weights have other names or shapes than the model.", "Use the same architecture flags, --use-legacy-models included."),
    _row("batch-arithmetic", ["global batch size (*) is not divisible by micro batch size"], "The batch sizes do not go together.",
         "Choose --global-batch-size as a multiple of micro batch size × data-parallel size."),
    _row("parallel-arithmetic", ["world size (*) is not divisible by", "world_size (*) is not divisible by"], "The number of ranks does not fit TP × PP × CP.", "Start a multiple of TP × PP × CP ranks."),
    _row("rampup", ["expected no batch-size rampup for iteration-based training"], "--rampup-batch-size cannot go with --train-iters.", "Drop the ramp-up, or use --train-samples."),
    _row("training-length", ["expected iteration-based training", "expected sample-based training"], "Options of --train-iters and --train-samples are mixed.", "Use one family of options."),
    _row("rerun", ["unexpected result * on rank * at iteration", "possible transient error!", "possible persistent error!", "correct result (but possible application error)", "need to rerun step to check reproducibility"],
         "A step gave an unexpected result and is repeated: not reproducible means suspect hardware, reproducible means data or maths.",
         "Drain the node or mend the data; after exit code 16 resume from the last checkpoint."),
    _row("nan", ["found nan in local", "unexpected result nan", "unexpected result inf", "found inf in local"], "A loss or gradient became NaN.",
         "Look at the data and the learning rate; when it is always the same node or GPU, take that out."),
    _row("missing-script", ["can't open file '*.py'", "no such file or directory: 'pretrain_gpt.py", "no such file or directory: pretrain_gpt.py", "pretrain_gpt.py: no such file"],
         "The script is not where python looks.", "Run inside the folder of Megatron-LM."),
    _row("dataset-helper", ["failed to compile the c++ dataset helper functions", "cannot import name 'helpers'", "no module named 'megatron.core.datasets.helpers"], "The data-set helper could not be compiled.", "make, g++ and pybind11 are needed, and a source folder that can be written; build once."),
    _row("max-connections", ["requires setting the environment variable cuda_device_max_connections"], "CUDA_DEVICE_MAX_CONNECTIONS is not set.", "Export CUDA_DEVICE_MAX_CONNECTIONS=1."),
    _row("server-tokenizer", ["get_tokenizer() takes * positional arguments but"], "core_r0.8.0's text server has a known fault: every request fails.",
         "Apply the server fix (mdk-tui setup patches) and restart the server."),
    _row("no-save-interval", ["unsupported operand type(s) for %: 'int' and 'nonetype'"], "--save was given without --save-interval: the last checkpoint is lost.", "Give --save-interval."),
    _row("bus-error", ["bus error"], "A rank died of a bus error: /dev/shm is too small, or a file system failed under mmap.", "Enlarge /dev/shm."),
    _row("shared-memory", ["error while creating shared memory segment", "call to posix_fallocate failed", "unable to open shared memory object"], "/dev/shm is too small or full.",
         "Enlarge it (docker: --ipc=host or --shm-size), or remove files that other runs left there."),
    _row("host-out-of-memory", ["oom_kill event", "oom-kill event", "srun: error: * task*: out of memory", "out of memory: killed process", "oomkilled", "killed due to memory pressure", "the node was low on resource: memory", "term_memlimit", "worker (pid *) is killed by signal: killed"], "The memory of the node (not of a GPU) is full, so the kernel ended a rank.", "Lower --num-workers, or ask the scheduler for more memory (Slurm: --mem)."),
    _row("data-loader", ["dataloader worker (pid(s) *) exited unexpectedly"], "A process that loads data died.", "Look for its own error above; if it was killed, the node's memory or /dev/shm is full: lower --num-workers."),
    _row("interrupted", ["keyboardinterrupt", "signalexception: process * got signal"], "The job was ended from outside (Ctrl-C, SIGTERM).", "Resume it from its last checkpoint."),
    _row("segmentation-fault", ["segmentation fault"], "A rank read memory that is not its own: a fault of a library or its versions.", "Compare the versions of driver, CUDA and PyTorch; run again with PYTHONFAULTHANDLER=1."),
    _row("gpu-kernel", ["an illegal memory access was encountered", "unspecified launch failure", "misaligned address", "cublas error", "cublas_status_", "cudnn_status_", "cudnn error", "memory access fault by gpu", "fail to call hipmodulelaunchkernel", "call acl api failed", "aborting with error : hsa_status_error"],
         "A program on a GPU failed.", "Run again with CUDA_LAUNCH_BLOCKING=1 to see which one; when it is always the same node or GPU, take that out."),
    _row("checkpoint-not-empty", ["checkpoint destination directory * is not empty"], "The folder of that iteration holds files of a crashed save.", "Move the folder away."),
    _row("bad-tracker", ["error: invalid metadata file", "error parsing metadata file"], "The tracker file is damaged.", "Write the iteration of a whole checkpoint into latest_checkpointed_iteration.txt."),
    _row("checkpoint-unreadable", ["could not load the checkpoint", "unable to load optimizer from checkpoint", "unable to load rng state from checkpoint", "is not a distributed checkpoint", "failed reading zip archive", "checkpointingexception: checkpoint directory"], "The checkpoint could not be read.",
         "mdk-tui checkpoints DIR says what is whole; resume from an earlier one."),
    _row("weights-only", ["weights only load failed"], "PyTorch 2.6 and later load weights alone, unless told otherwise; this checkpoint holds more.",
         "For a checkpoint that you trust export TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1."),
    _row("no-checkpoint", ["'--exit-on-missing-checkpoint' set ... exiting"], "There is no checkpoint to load, and starting from random weights was forbidden.",
         "--load must be the folder that holds latest_checkpointed_iteration.txt."),
    _row("loss-scale-minimum", ["current loss scale already at minimum"], "fp16 has diverged: the loss scale cannot go lower.", "Lower the learning rate or use bf16; resume from an earlier checkpoint."),
    _row("disk-full", ["no space left on device", "disk quota exceeded", "enforce fail at inline_container*unexpected pos"], "The disk or the quota is full.", "Make room: mdk-tui prune DIR --keep N."),
    _row("container", ["fatal:   "], "Singularity could not start the container.", "Read the line: a missing .sif or command, --nv, or --fakeroot."),
    _row("no-executable", ["mpirun was unable to find the specified", "mpirun was unable to launch the specified", "prterun was unable to find the specified", "prterun was unable to launch the specified", "could not access or execute an executable", "torchrun: command not found", "python: command not found", "mpirun: command not found", "srun: command not found", "singularity: command not found"],
         "The program is not there, or not on every node.", "Give its full path; it must be at the same place on every node."),
    _row("daemon-lost", ["a daemon failed to report back", "lost communication with a remote daemon", "orte has lost communication", "prte has lost communication"], "mpirun lost a node.", "Check that the node answers by SSH; mdk-tui probe names it."),
    _row("rank-killed", ["noticed that process rank * exited on", "exited on signal", "failed (exitcode: -", "exits with return code = -", "signal * received by pid", "srun: error: * task*: killed", "srun: error: * task*: aborted", ": line *: * killed  ", "a worker died or was killed while executing a task"], "A rank was killed by a signal.",
         "Signal 9 is the memory killer or the scheduler, 11 a segmentation fault, 15 a termination: see dmesg on that node."),
    _row("mpi-abort", ["mpi_abort was invoked on rank"], "A rank called MPI_ABORT.", "See that rank's lines."),
    _row("rank-failed", ["detected that one or more processes exited with non-zero status", "primary job * terminated normally, but", "childfailederror", "received * death signal", "failed (exitcode:", "exits with return code ="],
         "A rank failed, so the launcher ended the job.", "See the first traceback above."),
    _row("arguments", ["error: unrecognized arguments", ": error: argument -", "error: the following arguments are required"], "The script does not know an argument or its value.",
         "Options differ between versions of Megatron-LM: compare them with the script's --help."),
    _row("peer-lost", ["connection refused", "connection closed by peer", "connection reset by peer", "brokenpipeerror"], "Another rank, or a server, went away.", "Look for the first other error, in the logs of other nodes too.", raised=True),
    _row("binary-mismatch", ["undefined symbol", "version `glibc", "cannot open shared object file", "no kernel image is available", "invalid device function"], "A compiled package does not fit this PyTorch, CUDA or system.",
         "Install it again, built for the PyTorch in use (flash-attn, Transformer Engine, apex).", raised=True),
    _row("missing-module", ["modulenotfounderror", "importerror: cannot import name", "is not installed, please install"], "A Python package that the script needs is missing, or of another version.",
         "Install it where the ranks run: inside the image, where there is one.", raised=True),
    _row("no-permission", ["permissionerror"], "A file or folder may not be read or written.", "Check its owner and permissions, on every node.", raised=True),
    _row("file-system", ["stale file handle", "input/output error", "transport endpoint is not connected", "read-only file system"], "The file system failed under a file.",
         "Check that it is mounted and healthy on every node; resume from the last checkpoint.", raised=True),
    _row("open-files", ["too many open files"], "A process has too many files open.", "Raise the limit (ulimit -n), or lower --num-workers.", raised=True),
)  # fmt: skip
# Errors with which a launcher or the user ends the job.
ENDINGS = frozenset(
    {
        "rank-failed",
        "rank-killed",
        "mpi-abort",
        "container",
        "not-enough-slots",
        "no-executable",
        "daemon-lost",
        "interrupted",
        "arguments",
    }
)
_PHRASES = tuple((phrase[0], phrase[1:], row) for row in KNOWN_ERRORS for phrase in row.phrases)

EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*)(?::|\s*$)")
# Ray names the call instead of Python's words.
TRACEBACK = re.compile(r"Traceback \(most recent call last\)|\bray::[\w.]+\(\) \(pid=")


def find_known(line: str, raised: bool = False) -> KnownError | None:
    """The first row that fits `line`. `raised`: the line is the exception of a traceback."""
    lower = line.lower()
    for first, rest, row in _PHRASES:
        at = lower.find(first)
        if at >= 0 and (raised or not row.raised) and (not rest or _follows(lower, at + len(first), rest)):
            return row
    return None


def _follows(text: str, at: int, pieces: tuple[str, ...]) -> bool:
    for piece in pieces:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return True
