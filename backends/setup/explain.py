"""Explains from its output why a set-up command failed, with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from backends.setup.download import PROXY as REFUSED_PROXY
from backends.setup.megatron_step import BUNDLE


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a command failed, and what to try."""

    message: str
    remedy: str


# What to do without network depends on what was wanted from it.
OFFLINE = {
    "git": BUNDLE,
    "singularity": "Build the image on a machine with network, copy the .sif here and name it in mdk.toml: [image] path.",
    "download": "Fetch the file on another machine and put it where the command says; the step goes on with it.",
}
OFFLINE["apptainer"] = OFFLINE["singularity"]
PROXY = "If this site has a proxy, set https_proxy (and http_proxy)."

ROWS: tuple[tuple[str, str, str], ...] = (
    (r"Disk quota exceeded", "Your quota on that disk is used up.", "Remove files of yours there, or ask for a larger quota; an image is unpacked where APPTAINER_TMPDIR says. Then run the step again."),
    (r"No space left on device|not enough space|Not enough room", "The disk is full.", "Make room; for an image set APPTAINER_TMPDIR to a larger disk. Then run the step again."),
    (r"407 Proxy Authentication|Proxy CONNECT aborted|Received HTTP code 40\d from proxy|proxyconnect|ProxyError", "The proxy refused.", REFUSED_PROXY),
    (r"Could not resolve proxy", "The proxy of https_proxy is unknown here.", REFUSED_PROXY),
    (r"could not resolve host|Temporary failure (?:in name resolution|resolving)|Network is unreachable|Name or service not known|no such host", "This machine does not reach that host.", "{offline} " + PROXY),
    (r"Failed to connect to|connection timed out|connection refused|ReadTimeout|i/o timeout", "The host does not answer.", PROXY + " {offline}"),
    (r"Remote branch (\S+) not found", "The repository has no such branch.", "Check the branch, or name another mirror."),
    (r"Authentication failed|could not read Username", "The repository asks for a login.", "Check its address, or use another mirror."),
    (r"does not appear to be a git repository|repository '.*' (?:does not exist|not found)", "There is no repository at that address.", "Check the address: mdk.toml, [megatron] repository, or --repository."),
    (r"early EOF|RPC failed|index-pack failed|unexpected disconnect", "The connection to the repository broke.", "Run the step again: it starts the clone anew."),
    (r"no mapping entry found|could not use fakeroot", "--fakeroot needs a range of user ids for you.", "Ask the administrator for a line USER:100000:65536 in /etc/subuid and /etc/subgid."),
    (r"user namespace|unprivileged_userns_clone|clone\(CLONE_NEWUSER", "This kernel does not let you make user namespaces.", "Ask the administrator, or build the image elsewhere and copy it here."),
    (r"build target '([^']+)' already exists", "The image is there already.", "Move it away to build another; a finished image is not overwritten."),
    (r"unknown flag: --build-arg|build arguments? .* not (?:used|defined)|unused build arg", "This singularity, or the definition file, knows no such build argument.", "Use Apptainer 1.2 or SingularityCE 4 or newer, and a definition with an %arguments section."),
    (r"while making image from oci registry|unable to (?:pull|fetch)|toomanyrequests|UNAUTHORIZED", "The base image could not be fetched.", "Check the network and, for private images, `singularity remote login`. {offline}"),
    (r"could not parse reference|invalid reference format", "The name of the base image cannot be read.", "Mend the From: line of the definition file, such as host/name:tag."),
    (r"while performing build: .*packer|conveyor failed", "The base of the image could not be fetched or unpacked.", "Read the lines above; often the network, the proxy or the disk."),
    (r"while running engine|while running %post section|failed to execute %post", "A command of the image's %post section failed.", "Read the lines above its last `+` line; mend the definition file."),
    (r"could not open image", "The image is not there.", "Build it first: mdk-tui setup image."),
    (r"NameError: name 'nltk' is not defined|No module named 'nltk'", "The image lacks nltk, which preprocess_data.py of core_r0.8.0 needs.", "Rebuild the image with singularity/pytorch.def."),
    (r"json\.decoder\.JSONDecodeError", "A line of the corpus is not JSON.", "mdk-tui setup data --whole names the bad lines; mend them."),
    (r"KeyError: '(\w+)'", "A document lacks the key that is read.", "Every line needs it: mend the corpus, or name another key in mdk.toml: [data] key."),
    (r"is missing: it is written last", "The preprocessing ended without an index, whatever its status said: a worker of it failed.", "Read what it printed above; mend that, then run the step again."),
    (r"hunk failed|hunk #\d+ failed", "The file was edited, so the patch does not fit.", "git diff shows the edits; undo them, or apply the patch by hand."),
    (r"after resolving the conflicts|error: could not apply|your local changes would be overwritten", "The commit does not fit the clone as it is.", "git status shows the conflict; `git cherry-pick --abort` takes it back."),
    (r"\.lock': File exists", "A git command was killed in this clone, or still runs there.", "If none runs, remove the lock file that is named above, then run the step again."),
    (r"Permission denied|Read-only file system", "Something could not be written.", "The line above names it: check its owner and permissions."),
    (r"\bkilled\b|signal 9\b|out of memory", "The system killed the command, most likely for memory.", "Use fewer workers, or a machine with more memory."),
)  # fmt: skip


def explain(lines: Iterable[str], status: int, program: str = "") -> Explanation:
    """The first row that fits the newest lines of a failed `program`; else its last line."""
    text = list(lines)
    hints = [line.removeprefix("hint: ") for line in text if line.startswith("hint: ")]
    if hints and program.startswith("python") and len(text) > 1:  # mdk-tui's own program
        said = text[text.index(f"hint: {hints[-1]}") - 1]
        return Explanation(said, _named(hints[-1], "download"))
    for pattern, message, remedy in ROWS:
        if any(re.search(pattern, line, re.IGNORECASE) for line in text):  # Go's words are in lower case
            return Explanation(message, _named(remedy, program))
    words = [line.strip() for line in text if line.strip()]
    said = f": {words[-1]}" if words else ""
    return Explanation(
        f"The command ended with status {status}{said}",
        "Read the lines above, mend the cause, run the step again.",
    )


def _named(remedy: str, program: str) -> str:
    return " ".join(remedy.replace("{offline}", OFFLINE.get(program, "")).split())
