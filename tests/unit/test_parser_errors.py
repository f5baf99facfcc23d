"""Known errors are recognised and explained, and the same error of many ranks becomes one."""

from __future__ import annotations

import pytest
from megatron_text import iteration_line, one, parse, rows

from backends.megatron.diagnosis import diagnose
from backends.megatron.known_errors import KNOWN_ERRORS
from backends.megatron.parser import Parser
from backends.megatron.record import Record

# One line for each kind as it is printed; every row of the table is here.
LINES = [
    ("out-of-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB."),
    ("nccl-timeout", "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, Timeout(ms)=600000) ran for 600003 milliseconds"),
    ("out-of-memory", "RuntimeError: HIP out of memory. Tried to allocate 7.12 GiB"),
    ("gpu-fault", "[Tue Feb 11 04:17:01 2025] NVRM: Xid (PCI:0000:5d:00): 79, pid=4711, GPU has fallen off the bus."),
    ("gpu-kernel", "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("nccl-timeout", "[rank0]:[F1130 11:12:13.1 ProcessGroupNCCL.cpp:1306] [PG 0 Rank 0] Heartbeat monitor timed out! x"),
    ("hccl", "RuntimeError: OpParamMaker.cpp:281 OPS function error: HcclAllreduce, error code is 6"),
    ("rank-missing", "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
    ("shared-memory", "gpu01:4711:4800 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device"),
    ("host-out-of-memory", "[12345.678901] Out of memory: Killed process 4711 (python) total-vm:1234kB"),
    ("weights-only", "_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the default"),
    ("arguments", "pretrain_gpt.py: error: unrecognized arguments: --use-foo"),
    ("gpu-kernel", "[AITER] asm_fmha_fwd.cpp:142 fail to call hipModuleLaunchKernel(kernel) ---> [HIP error](invalid resource handle)"),
    ("rank-killed", "E1130 11:12:13.418000 4711 torch/x/api.py:869] failed (exitcode: -11) local_rank: 3 (pid: 4714) of binary: python"),
    ("rank-killed", "['/usr/bin/python', '-u', 'pretrain_gpt.py', '--local_rank=0'] exits with return code = -9"),
    ("rank-failed", "['/usr/bin/python', '-u', 'pretrain_gpt.py', '--local_rank=0'] exits with return code = 1"),
    ("rank-killed", "  traceback : Signal 9 (SIGKILL) received by PID 4711"),
    ("rank-killed", "srun: error: gpu07: tasks 0-7: Killed"),
    ("rank-killed", "/var/spool/slurmd/job4711/slurm_script: line 88: 12345 Killed                  python pretrain_gpt.py"),
    ("rerun", "WARNING:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at iteration #4711 invocation #1"),
    ("duplicate-gpu", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"),
    ("nccl", "torch.distributed.DistBackendError: NCCL error, unhandled system error, ncclSystemError: x"),
    ("address-in-use", "RuntimeError: The server socket has failed to listen. errno: 98 - Address already in use"),
    ("no-master-address", "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set"),
    ("rank-0-unreachable", "The client socket has timed out after 600s while trying to connect to (node0, 6000)."),
    ("not-enough-slots", "There are not enough slots available in the system to satisfy the 16"),
    ("local-rank", "AssertionError: expected local-rank to be the same as rank % device-count."),
    ("invalid-device", "RuntimeError: CUDA error: invalid device ordinal"),
    ("no-gpu", "AssertionError: Megatron requires CUDA."),
    ("no-data", "AssertionError: One or both of the .idx and .bin files cannot be found at the path prefix /data/nope"),
    ("bad-index", "AssertionError: bad header, cannot read: x.idx"),
    ("truncated-data", "ValueError: mmap length is greater than file size"),
    ("no-tokenizer-file", "FileNotFoundError: [Errno 2] No such file or directory: 'gpt2-vocab.json'"),
    ("token-out-of-range", "RuntimeError: CUDA error: device-side assert triggered"),
    ("vocabulary-mismatch", "AssertionError: padded_vocab_size value from checkpoint (50304) is not equal to the input argument value (50432)."),
    ("checkpoint-mismatch", "AssertionError: num_layers value from checkpoint (12) is not equal to the input argument value (24)."),
    ("scheduler-mismatch", "AssertionError: OptimizerParamScheduler: class input value 8000 and checkpointvalue 6400 do not match"),
    ("state-mismatch", "RuntimeError: Error(s) in loading state_dict for GPTModel:"),
    ("batch-arithmetic", "AssertionError: global batch size (30) is not divisible by micro batch size (8) times data parallel size (2)"),
    ("parallel-arithmetic", "AssertionError: world size (6) is not divisible by tensor model parallel size (4)"),
    ("rampup", "AssertionError: expected no batch-size rampup for iteration-based training"),
    ("training-length", "AssertionError: expected iteration-based training"),
    ("nan", "AssertionError: Rank 5: found NaN in local forward loss calculation. Device: 5, node: host"),
    ("rerun", "Possible persistent error! Rank 3"),
    ("missing-script", "python: can't open file '/opt/Megatron-LM/pretrain_gpt.py': [Errno 2] No such file or directory"),
    ("dataset-helper", "Failed to compile the C++ dataset helper functions"),
    ("max-connections", "RuntimeError: Using async gradient all reduce requires setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1"),
    ("server-tokenizer", "TypeError: get_tokenizer() takes 0 positional arguments but 1 was given"),
    ("no-save-interval", "TypeError: unsupported operand type(s) for %: 'int' and 'NoneType'"),
    ("bus-error", "Bus error (core dumped)"),
    ("host-out-of-memory", "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed."),
    ("segmentation-fault", "train.sh: line 5: 4242 Segmentation fault      (core dumped) python pretrain_gpt.py"),
    ("interrupted", "KeyboardInterrupt"),
    ("checkpoint-not-empty", "CheckpointingException: Checkpoint destination directory (ck/iter_0000010) is not empty"),
    ("bad-tracker", "ERROR: Invalid metadata file ck/latest_checkpointed_iteration.txt. Exiting"),
    ("checkpoint-unreadable", "could not load the checkpoint"),
    ("no-checkpoint", ">> '--exit-on-missing-checkpoint' set ... exiting. <<"),
    ("loss-scale-minimum", "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."),
    ("disk-full", "OSError: [Errno 28] No space left on device"),
    ("container", "FATAL:   could not open image /x/y.sif: no such file or directory"),
    ("no-executable", "prterun was unable to find the specified executable file, and therefore"),
    ("daemon-lost", "A daemon failed to report back after being spawned"),
    ("rank-killed", "mpirun noticed that process rank 1 with PID 77 on node n exited on signal 9 (Killed)."),
    ("mpi-abort", "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD"),
    ("infiniband", "n1:984:1357 [4] net_ib.cc:2360 NCCL WARN NET/IB: Got completion from peer 10.1.2.3<4206> with status=12 opcode=1 len=0 vendor err 129 (Recv)"),
    ("infiniband", "n1:238:1219 [0] net_ib.cc:180 NCCL WARN NET/IB : mlx5_ib0:1 async fatal event on QP (0x7f6): local access violation work queue error"),
    ("infiniband", "[1700000000.1] [n1:55:0] ib_mlx5_log.c:171  UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB"),
    ("host-out-of-memory", "The node was low on resource: memory. Container pytorch was using 200Gi, which exceeds its request of 0."),
    ("host-out-of-memory", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit."),
    ("rank-killed", "A worker died or was killed while executing a task by an unexpected system error."),
    ("gpu-busy", "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
    ("data-loader", "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"),
    ("no-tokenizer-file", "OSError: You are trying to access a gated repo."),
    ("rank-failed", "prterun detected that one or more processes exited with non-zero status,"),
]  # fmt: skip

SLURM = "slurmstepd: error: *** JOB 4711 ON gpu07 CANCELLED AT 2025-02-11T04:17:01"
# What is an error only as the end of a traceback.
RAISED = [
    ("missing-module", "ModuleNotFoundError: No module named 'apex'"),
    ("binary-mismatch", "RuntimeError: HIP error: invalid device function"),
    ("binary-mismatch", "ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"),
    ("no-permission", "PermissionError: [Errno 13] Permission denied: '/ckpt/iter_0000100'"),
    ("file-system", "OSError: [Errno 116] Stale file handle"),
    ("open-files", "OSError: [Errno 24] Too many open files"),
    ("peer-lost", "requests.exceptions.ConnectionError: [Errno 111] Connection refused"),
    ("peer-lost", "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.2.3]:4711"),
]


def test_every_known_error_has_an_example_here() -> None:
    assert {kind for kind, _ in [*LINES, *RAISED]} == {row.kind for row in KNOWN_ERRORS}


@pytest.mark.parametrize(("kind", "line"), LINES)
def test_an_error_is_recognised_and_explained(kind: str, line: str) -> None:
    row = one(line + "\n", "error")
    assert (row["kind"], row["message"]) == (
        kind,
        line.removeprefix("WARNING:megatron.core.rerun_state_machine:").strip(),
    )
    assert row["explanation"].endswith(".") and row["remedy"].endswith(".")


@pytest.mark.parametrize(("kind", "line"), RAISED)
def test_some_phrases_are_errors_only_at_the_end_of_a_traceback(kind: str, line: str) -> None:
    assert one("\n".join(traceback("", line)) + "\n", "error")["kind"] == kind
    assert not rows(parse(line + "\n"), "error")


@pytest.mark.parametrize("rank", ["", "[rank3]: "])
@pytest.mark.parametrize(
    ("exception", "details", "kind"),
    [
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1970, invalid usage (run with NCCL_DEBUG=WARN)",
         ["ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "Last error:", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 5d000"], "duplicate-gpu"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1970, remote process exited", ["ncclRemoteError: A call failed."], "nccl"),
        ('AssertionError:   File "/w/grad_buffer.py", line 146, in sync', ["Rank 3: found NaN in local grad norm in backward pass. Device: 3, node: n"], "nan"),
        ("RuntimeError: something", ["[E1130 11:12:13 x.cpp:9] [Rank 0] Watchdog caught collective operation timeout: x"], "exception"),
    ],
)  # fmt: skip
def test_the_lines_of_its_message_may_explain_an_exception(rank: str, exception: str, details: list[str], kind: str) -> None:  # fmt: skip
    lines = [*traceback(rank, exception), *(rank + detail for detail in details)]
    first = rows(parse("\n".join(lines) + "\n"), "error")[0]
    assert (first["kind"], first["ranks"]) == (kind, 1)


@pytest.mark.parametrize("kind", [row.kind for row in KNOWN_ERRORS])
def test_phrases_hold_no_digits_and_are_in_lower_case(kind: str) -> None:
    # A line is known to be meaningless by its form, in which all digits are alike.
    (known,) = [row for row in KNOWN_ERRORS if row.kind == kind]
    for phrase in known.phrases:
        text = "".join(phrase)
        assert text == text.lower() and not any(map(str.isdigit, text)) and phrase[0]


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: CUDA out of memory will be printed if x",
        "/lib/x.py:83: UserWarning: Address already in use",
        "  error_injection_rate ............................ 0",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99).",
        "[W1130 11:12:13.123456789 socket.cpp:464] [c10d] The server socket has failed to bind (errno: 98 - Address already in use).",
        "[rank3]:[W401 11:12:13.1 TCPStore.cpp:106] [c10d] sendBytes failed: Connection refused",
        "W0211 04:17:01.123000 4711 torch/x.py:906] No space left on device, retrying",
        "WARNING:root:Tracking server: Connection refused, retrying",
        "2025-02-11 04:17:01,123 - WARNING - Tracking server: Connection refused, retrying",
        "gpu01:4711:4800 [0] NCCL INFO Call to connect returned Connection refused, retrying",
        "INFO:root:Connection refused once",
        "# so that it does not run into CUDA out of memory",
        "INFO: no errors found",
    ],
)
def test_warnings_are_no_errors(line: str) -> None:
    assert not rows(parse(line + "\n"), "error")


def traceback(prefix: str, error: str) -> list[str]:
    return [
        f"{prefix}Traceback (most recent call last):",
        f'{prefix}  File "pretrain_gpt.py", line 245, in <module>',
        f"{prefix}    assert args.vocab_file is not None",
        f"{prefix}{error}",
    ]


def test_tracebacks_of_many_ranks_are_one_error_of_the_first_rank() -> None:
    text = "\n".join(
        line for rank in (5, 2, 7) for line in traceback(f"[rank{rank}]: ", "ValueError: nothing")
    )
    row = one(text + "\n", "error")
    assert (row["kind"], row["first_rank"], row["ranks"], row["line"]) == ("exception", 5, 3, 4)
    assert row["message"] == "ValueError: nothing" and "ValueError" in row["explanation"]


def test_interleaved_tracebacks_are_told_apart_by_their_prefix() -> None:
    columns = [traceback(f"[1,{rank}]<stderr>: ", "KeyError: 'text'") for rank in range(8)]
    text = "\n".join(line for row in zip(*columns, strict=True) for line in row)
    row = one(text + "\n", "error")
    assert (row["ranks"], row["first_rank"], row["message"]) == (8, 0, "KeyError: 'text'")


def test_interleaved_tracebacks_without_prefix_are_counted() -> None:
    columns = [traceback("", "zlib.error.BadThingError: broken") for _ in range(4)]
    text = "\n".join(line for row in zip(*columns, strict=True) for line in row)
    row = one(text + "\n", "error")
    assert (row["ranks"], row["first_rank"]) == (4, None)
    glued = "Traceback (most recent call last):Traceback (most recent call last):\n  File x\n  File y\nTypeError: a\nTypeError: a\n"
    assert one(glued, "error")["ranks"] == 2


def test_mpirun_names_the_first_rank_of_tracebacks_without_prefix() -> None:
    text = (
        "\n".join(traceback("", "ValueError: x"))
        + "\n   Process name: [prterun-vm-2635@1,3]\n   Exit code:    1\n"
    )
    assert one(text, "error")["first_rank"] == 3


def test_torchrun_names_the_first_rank_in_the_last_of_its_blocks() -> None:
    text = (
        "Traceback (most recent call last):\n  File x\nKeyError: 'state'\n"
        "torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: 1) local_rank: 5 (pid: 119) of binary: python\n"
        "Failures:\n[1]:\n  rank      : 3 (local_rank: 3)\nRoot Cause (first observed failure):\n[0]:\n  rank      : 5 (local_rank: 5)\n"
    )
    found = rows(parse(text), "error")
    assert [(row["kind"], row["first_rank"]) for row in found] == [("exception", 5), ("rank-failed", 5)]


def test_messages_without_a_rank_are_not_counted_as_ranks() -> None:
    line = "Loss.cu:240: nll_loss: block: [0,0,0], thread: [{}, 0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
    assert one("".join(map(line.format, range(100))), "error")["ranks"] == 1


def test_tracebacks_of_ray() -> None:
    text = (
        "(TaskRunner pid=33) Unhandled error: ray::WorkerDict.load_checkpoint() (pid=18, ip=10.1.2.3)\n"
        '(TaskRunner pid=33)   File "base.py", line 440, in func\n'
        "(TaskRunner pid=33) KeyError: 'master_param'\n"
    )
    assert one(text, "error")["message"] == "KeyError: 'master_param'"


def test_exceptions_of_packages_end_a_traceback_whatever_their_name() -> None:
    text = "[rank0]: Traceback (most recent call last):\n[rank0]:   File x\n[rank0]: triton.runtime.errors.OutOfResources: out of resource: shared memory\n"
    assert one(text, "error")["first_rank"] == 0


def test_a_bare_assertion_error_shows_its_source_line() -> None:
    row = one("\n".join(traceback("", "AssertionError")) + "\n", "error")
    assert row["kind"] == "no-tokenizer-file"
    row = one("Traceback (most recent call last):\n  File x\n    assert a == b\nAssertionError\n", "error")
    assert row["message"] == "AssertionError assert a == b"


def test_a_workers_own_traceback_replaces_the_report_that_it_failed() -> None:
    caught = traceback("", "RuntimeError: Caught RuntimeError in DataLoader worker process 0.")
    original = ["Original " + line for line in traceback("", "RuntimeError: a stored shape is wrong")[:1]]
    text = "\n".join([*caught, *original, *traceback("", "RuntimeError: a stored shape is wrong")[1:]]) + "\n"
    row = one(text, "error")
    assert (row["message"], row["ranks"]) == ("RuntimeError: a stored shape is wrong", 1)


def test_a_traceback_in_a_frame_is_read() -> None:
    text = """╭──── Traceback (most recent call last) ────╮
│ /w/x.py:3 in main                         │
│ ❱ 33 │ raise RuntimeError("CUDA out of memory") │
╰───────────────────────────────────────────╯
TypeError: step() got an unexpected keyword argument
"""
    row = one(text, "error")
    assert (row["kind"], row["line"], row["ranks"]) == ("exception", 5, 1)


def test_chained_exceptions_are_two_errors_at_most_and_the_cause_comes_first() -> None:
    text = "\n".join(
        [
            *traceback("", "KeyError: 'a'"),
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            *traceback("", "RuntimeError: CUDA error: invalid device ordinal"),
        ]
    )
    found = rows(parse(text + "\n"), "error")
    assert [row["message"][:8] for row in found] == ["KeyError", "RuntimeE"]


def test_a_traceback_without_an_end_hides_no_later_events() -> None:
    text = "Traceback (most recent call last):\n  File x\n" + "".join(iteration_line(i) for i in range(1, 50))
    assert len(rows(parse(text), "iteration")) == 49


def test_a_hanging_job_shows_its_error_before_the_log_ends() -> None:
    parser = Parser()
    assert not parser.feed(("\n".join(traceback("[rank0]: ", "ValueError: x")) + "\n").encode())
    (error,) = parser.pending_errors()
    assert (error.first_rank, error.ranks) == (0, 1)
    parser.feed(("\n".join(traceback("[rank1]: ", "ValueError: x")) + "\n").encode())
    assert [error.ranks for error in parser.pending_errors()] == [2]
    assert [row["ranks"] for row in rows(parser.finish(), "error")] == [2]


def test_an_error_is_reported_when_iterations_follow_it() -> None:
    parser = Parser()
    parser.feed(b"Possible transient error!\n")
    found = rows(parser.feed(iteration_line(5).encode()))
    assert [row["event"] for row in found] == ["error", "iteration"]


def test_errors_are_bounded() -> None:
    text = "".join(f"Traceback (most recent call last):\n  x\nE{i}Error: y\n" for i in range(500))
    assert len(rows(parse(text), "error")) == 50


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (SLURM + " DUE TO TIME LIMIT ***", "time"),
        (SLURM + " DUE TO PREEMPTION ***", "another job"),
        (SLURM + " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "node"),
        (SLURM + " ***", "somebody"),
        ("=>> PBS: job killed: walltime 3612 exceeded limit 3600", "time"),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "time"),
    ],
)
def test_schedulers_say_why_they_end_a_job(line: str, word: str) -> None:
    events = parse(line + "\n")
    (row,) = rows(events, "alert")
    record = Record()
    record.apply(events)
    assert word in row["message"] and diagnose(record).phase == "stopped"


def test_the_end_of_a_slurm_job() -> None:
    cancelled = (
        "slurmstepd: error: *** JOB 123 ON node1 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***"
    )
    assert one(f"{cancelled}\n", "exit")["reason"] == cancelled
    assert one("srun: error: node1: task 3: Exited with exit code 1\n", "exit")["status"] == 1
    assert one("srun: error: node1: task 3: Out Of Memory\n", "error")["kind"] == "host-out-of-memory"


def test_ctrl_c_ends_the_job_and_is_no_hang() -> None:
    text = '^CTraceback (most recent call last):\n  File "x", line 1, in <module>\n    main()\nKeyboardInterrupt\n'
    error = one(text, "error")
    assert (error["kind"], error["line"]) == ("interrupted", 4)
    record = Record()
    record.apply(parse(iteration_line(1) + text))
    found = diagnose(record)
    assert (found.phase, found.hanging) == ("failed", False)


def test_a_cancelled_job_and_its_step_give_one_alert() -> None:
    lines = [
        SLURM + " DUE TO TIME LIMIT ***",
        SLURM.replace("JOB 4711", "STEP 4711.0") + " DUE TO TIME LIMIT ***",
    ]
    assert len(rows(parse("\n".join(lines) + "\n"), "alert")) == 1


def test_exceptions_of_private_modules_are_reported_except_that_of_a_late_worker() -> None:
    head = "Traceback (most recent call last):\n  File x\n"
    assert one(head + "_pickle.UnpicklingError: invalid load key, 'v'.\n", "error")["message"].startswith(
        "_pickle."
    )
    assert rows(parse(head + "_queue.Empty\n"), "error") == []
