"""Why a set-up command failed, in words with a remedy, from what it printed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from backends.setup.megatron_step import OFFLINE


@dataclass(frozen=True, slots=True)
class Explanation:
    message: str
    remedy: str


ROWS: tuple[tuple[str, str, str], ...] = (
    (r"Could not resolve host|Temporary failure in name resolution|Network is unreachable|Name or service not known", "This machine does not reach that host.", OFFLINE),
    (r"Failed to connect to|Connection timed out|Connection refused", "The host does not answer.", "Set https_proxy if this site has a proxy. " + OFFLINE),
    (r"Remote branch (\S+) not found", "The repository has no such branch.", "Check the branch, or name another mirror."),
    (r"Authentication failed|could not read Username", "The repository asks for a login.", "Check its address, or use another mirror."),
    (r"No space left on device|Disk quota exceeded|not enough space", "The disk or the quota is full.", "Make room; for an image set APPTAINER_TMPDIR to a larger disk. Then run the step again."),
    (r"no mapping entry found|could not use fakeroot", "--fakeroot needs a range of user ids for you.", "Ask the administrator for a line USER:100000:65536 in /etc/subuid and /etc/subgid."),
    (r"user namespace|unprivileged_userns_clone|clone\(CLONE_NEWUSER", "This kernel does not let you make user namespaces.", "Ask the administrator, or build the image elsewhere and copy it here."),
    (r"build target '([^']+)' already exists", "The image is there already.", "Move it away to build another; a finished image is not overwritten."),
    (r"while making image from oci registry|unable to (?:pull|fetch)|toomanyrequests|UNAUTHORIZED|unauthorized", "The base image could not be fetched.", "Check the network and, for private images, `singularity remote login`."),
    (r"while performing build: .*packer|conveyor failed", "The base of the image could not be fetched or unpacked.", "Read the lines above; often the network, the proxy or the disk."),
    (r"could not open image", "The image is not there.", "Build it first: mdk-tui setup image."),
    (r"NameError: name 'nltk' is not defined|No module named 'nltk'", "The image lacks nltk, which preprocess_data.py of core_r0.8.0 needs.", "Rebuild the image with singularity/pytorch.def."),
    (r"json\.decoder\.JSONDecodeError", "A line of the corpus is not JSON.", "mdk-tui setup data --dry-run names the first bad line of the sample; mend it."),
    (r"KeyError: '(\w+)'", "A document lacks the key that is read.", "Every line needs a \"text\"; mend the corpus."),
    (r"hunk FAILED|Hunk #\d+ FAILED", "The file was edited, so the patch does not fit.", "git diff shows the edits; undo them, or apply the patch by hand."),
    (r"Killed|signal 9|Out of memory", "The system killed the command, most likely for memory.", "Use fewer workers, or a machine with more memory."),
)  # fmt: skip


def explain(lines: Iterable[str], status: int) -> Explanation:
    """The first row that fits what a failed command printed (the newest lines are enough); else its last words."""
    text = list(lines)
    for pattern, message, remedy in ROWS:
        if any(re.search(pattern, line) for line in text):
            return Explanation(message, remedy)
    words = [line.strip() for line in text if line.strip()]
    said = f": {words[-1]}" if words else ""
    return Explanation(
        f"The command ended with status {status}{said}",
        "Read the lines above, mend the cause, run the step again.",
    )
