"""Leads the job's session, starts the job in it and writes how it ended, whether or not a supervisor lives.

Run as a file by a bare interpreter: `python -I -S wrapper.py PIPE EXIT_FILE ARGV…`. It imports almost nothing, so that it
needs only a few MB of memory beside a job of weeks. The job's pid goes to the descriptor PIPE. EXIT_FILE gets
{"exit_code": …, "signal": …, "time": …}. If that cannot be written, the wrapper's own exit status tells the same.
"""

import os
import signal
import sys
import time

# The file is filled with blanks before the job starts and overwritten in place, so the end can be written on a full disk.
RESERVED = 128
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: list[str]) -> None:
    pipe, exit_file, argv = int(arguments[0]), arguments[1], arguments[2:]
    # The wrapper only waits for the job. A signal that reaches the child before its exec waits there, and ends the job.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    temporary = f"{exit_file}.part"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    os.write(descriptor, b" " * (RESERVED - 1) + b"\n")
    child = os.fork()
    if child == 0:
        _become(argv, pipe)
    os.write(pipe, f"{child}\n".encode())
    os.close(pipe)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    how = (
        (f'"exit_code": {code}', '"signal": null')
        if code >= 0
        else ('"exit_code": null', f'"signal": {-code}')
    )
    text = f'{{{how[0]}, {how[1]}, "time": {time.time():.3f}}}'
    try:
        os.pwrite(descriptor, text.encode(), 0)
        os.fsync(descriptor)
    except OSError as error:
        _say(f"{temporary}: {error.strerror}")
    try:
        os.rename(temporary, exit_file)  # noqa: PTH104 (pathlib would cost more than all the rest)
    except OSError as error:
        _say(f"{exit_file}: {error.strerror}")
    os._exit(code if code >= 0 else 128 - code)


def _say(text: str) -> None:
    try:
        os.write(2, f"mdk-tui: {text}\n".encode(errors="replace"))
    except OSError:
        pass  # output.log is on the same disk


def _become(argv: list[str], pipe: int) -> None:
    """Become the job. The process group is its own, so that a signal to the group spares the wrapper."""
    os.close(pipe)
    os.setpgid(0, 0)
    # exec keeps ignored signals ignored, and Python ignores SIGPIPE and SIGXFSZ.
    for number in (*SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"mdk-tui: {argv[0]} cannot be run: {error.strerror}\n".encode(errors="replace"))
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
