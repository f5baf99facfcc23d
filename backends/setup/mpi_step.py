"""MPI: host and image need the same Open MPI up to the patch number, and two ranks must see each other in a real job."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from backends.launch.image import container_words
from backends.programs import Answer
from backends.setup.image_step import build_action, follows_host, host_mpi, put_in_place
from backends.setup.step import INSTALL_SINGULARITY, NO_SINGULARITY, Action, Finding, Site, StepFindings
from backends.setup.versions import MpiVersion, mismatch, read_mpi_version

PROOF = (
    "from mpi4py import MPI; w = MPI.COMM_WORLD; "
    "print('mdk-rank', w.Get_rank(), 'of', w.Get_size(), 'sum', w.allreduce(w.Get_rank() + 1), flush=True)"
)
SEEN = re.compile(r"mdk-rank (\d+) of (\d+) sum (\d+)")
TIME_LIMIT = 60.0  # s; mpirun hung at the end of one in ten short jobs


class MpiStep(StepFindings):
    name = "mpi"
    title = "MPI"

    def look(self, site: Site) -> Finding:
        mpirun = site.programs.find("mpirun")
        if mpirun is None:
            return self.failed(
                "There is no mpirun in PATH.", "Load the Open MPI module of this site, or install Open MPI 5."
            )
        host = host_mpi(site)
        if host is None:
            return self.failed(f"{mpirun} does not say its version.", "Run `mpirun --version` by hand.")
        if not site.image.is_file():
            return self.pending(f"host {host}   image not built yet", "Build the image first.")
        if site.singularity is None:
            return self.failed(NO_SINGULARITY, INSTALL_SINGULARITY)
        answer = asked_inside(site)
        image = read_mpi_version(answer.stdout)
        if image is None:
            why = (answer.stderr.strip().splitlines() or ["mpirun said nothing"])[-1]
            return self.failed(f"host {host}   image without mpirun: {why}", rebuild(site, host))
        evidence = f"host {host}   image {image}"
        proof = proof_command(site, mpirun)
        failure = mismatch(host, image) or judge_proof(
            site.programs.ask(proof, timeout=TIME_LIMIT, env=root_may_run(site))
        )
        if failure:
            return self.failed(f"{evidence}. {failure}", rebuild(site, host))
        return self.ok(f"{evidence} · two ranks saw each other", details=(shlex.join(proof),))

    def actions(self, site: Site) -> Sequence[Action]:
        """Build another image with the host's version, and keep the old one beside it."""
        image, host = site.image, host_mpi(site)
        if host is None or site.singularity is None or not image.is_file() or not follows_host(site):
            return []
        inside = read_mpi_version(asked_inside(site).stdout)
        if inside is not None and not mismatch(host, inside):
            return []
        old = image.with_name(f"{image.name}.open-mpi-{inside or 'none'}")
        aside = Action("keep the old image", ("mv", "-n", "-T", str(image), str(old)), image.parent)
        return [build_action(site), aside, put_in_place(site)]


def contained(site: Site) -> tuple[str, ...]:
    """The words before a command that runs inside the image."""
    return container_words(site.singularity or "singularity", str(site.image), site.settings.image)


def asked_inside(site: Site) -> Answer:
    """What the image's mpirun says of its version."""
    return site.programs.ask([*contained(site), "mpirun", "--version"], timeout=TIME_LIMIT)


def proof_command(site: Site, mpirun: str) -> list[str]:
    """A job of two ranks inside the image that report whom they see."""
    options = ("--np", "2", "--oversubscribe", "--bind-to", "none")
    return [mpirun, *options, *contained(site), "python3", "-c", PROOF]


def root_may_run(site: Site) -> dict[str, str]:
    """Open MPI refuses to run as root unless both variables are set."""
    if os.geteuid() != 0:
        return {}
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def judge_proof(answer: Answer) -> str:
    """Why the two ranks did not meet; "" when they did."""
    seen = [(int(rank), int(size), int(total)) for rank, size, total in SEEN.findall(answer.stdout)]
    if sorted(seen) == [(0, 2, 3), (1, 2, 3)]:
        return ""
    if any(size == 1 for _, size, _ in seen):
        return "Each rank believed it was alone (rank 0 of 1): the image's MPI does not talk to the host's mpirun."
    if "mpi4py" in answer.stderr:
        return "The image has no mpi4py, so the proof with two ranks could not run."
    words = [line for line in answer.stderr.splitlines() if line.strip(" -")]
    return f"The job of two ranks failed: {words[0] if words else f'status {answer.status}, no message'}"


def rebuild(site: Site, host: MpiVersion) -> str:
    if host.numbers is None:
        return "Load the Open MPI module of this site, so that its mpirun comes first in PATH."
    if follows_host(site):
        return (
            f"`mdk-tui setup mpi` builds the image anew with --build-arg OPENMPI={host}; the old one is kept."
        )
    return f"Build the image anew with Open MPI {host}: its definition takes no OPENMPI. cpu.def has that of its SUITE."
