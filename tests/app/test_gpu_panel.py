"""The GPU panel: what it says at every size, and that it writes only what changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region

from backends.megatron.events import Memory
from backends.telemetry.readings import GpuProcess, GpuReading, HostReading, Snapshot
from tui.glyphs import ASCII, UNICODE
from tui.widgets.calm_readings import CalmReadings
from tui.widgets.gpu_panel import GpuPanel
from tui.widgets.gpu_rows import body, megatron_line
from tui.widgets.panel import width_of

GIB = 1 << 30
HOST = HostReading("node-a", 128, 12.0, 3.2, 31 * GIB, 251 * GIB)


def gpu(index: int, **fields: object) -> GpuReading:
    reading = GpuReading(
        index=index,
        name="NVIDIA H100 80GB HBM3",
        memory_used=int(73.3 * GIB),
        memory_total=int(79.6 * GIB),
        utilization=99,
        power=690.2,
        power_limit=700,
        temperature=61 + index,
        sm_clock=1980,
        processes=(GpuProcess(4242 + index, 73 * GIB, "python3", "ada"),),
        throttling=("power cap",),
        ecc_errors=0,
    )
    return replace(reading, **fields)  # type: ignore[arg-type]


def node(*gpus: GpuReading, host: HostReading = HOST, note: str | None = None) -> Snapshot:
    return Snapshot(1796017628.0, host, gpus, note)


EIGHT = node(*(gpu(index) for index in range(8)))
NO_GPU = node(note="This machine has no NVIDIA GPU (no driver library was found).")


def text(*snapshots: Snapshot, width: int = 60, height: int = 10, processes: bool = False) -> list[str]:
    rows = body(snapshots, width, height, UNICODE, processes=processes, user="ada")
    return ["".join(part for part, _ in row).rstrip() for row in rows]


def test_each_gpu_has_a_row_with_aligned_columns():
    rows = text(EIGHT)
    assert rows[0] == "0 ━━━━━━━━━━━━━━━━━━━━━━── 73.3/79.6 GiB  99 %  690 W  61 °C"
    assert rows[7].endswith("73.3/79.6 GiB  99 %  690 W  68 °C")
    assert rows[8] == "host node-a  memory 31.0/251.0 GiB  CPU  12 %"


def test_too_low_for_eight_rows_they_fold_into_one():
    assert text(EIGHT, height=1) == ["8 GPUs  73.3/79.6 GiB  99 %  5,522 W  61–68 °C"]


def test_folded_what_needs_attention_is_named():
    hot = node(*(gpu(index, temperature=89 if index == 3 else 61) for index in range(8)))
    assert text(hot, width=80, height=1) == ["8 GPUs  73.3/79.6 GiB  99 %  5,522 W  61–89 °C  3 hot"]
    assert text(hot, height=2)[1] == "3 hot"


@pytest.mark.parametrize(
    ("fields", "words", "style"),
    [
        ({"temperature": 85.0}, "hot", "warning"),
        ({"throttling": ("power cap", "heat (hardware)", "heat (software)")}, "throttles: heat", "warning"),
        ({"ecc_errors": 2}, "2 memory errors (ECC)", "error"),
        ({"note": "lost: reset it", "memory_used": None, "memory_total": None}, "lost: reset it", "error"),
    ],
)
def test_trouble_is_named_in_words_beside_its_colour(fields: dict[str, object], words: str, style: str):
    row = body((node(gpu(0, **fields)),), 80, 5, UNICODE, processes=False, user=None)[0]
    assert row[-1] == (f" {words}", style)


def test_full_load_at_the_power_cap_is_no_trouble():
    assert text(node(gpu(0)))[0].endswith("61 °C")


def test_a_missing_reading_is_shown_as_missing():
    silent = node(GpuReading(0, memory_total=80 * GIB))
    assert text(silent)[0].endswith("   –/80.0 GiB   – %    – W   – °C")
    both = node(*silent.gpus, *silent.gpus)
    assert text(both, height=1)[0] == "2 GPUs     –/80.0 GiB  – %  – W  – °C"


def test_narrow_panes_lose_power_first_then_temperature_and_keep_memory():
    assert text(EIGHT, width=36)[0] == "0 ━━━━━━─ 73.3/79.6 GiB  99 %  61 °C"
    assert text(EIGHT, width=24)[0] == "0 ━━━━━━━─ 73.3/79.6 GiB"


def test_two_nodes_have_letters_and_one_may_be_silent():
    other = node(gpu(0), host=replace(HOST, host="node-b"))
    rows = text(node(gpu(0)), other, height=4)
    assert [row[:2] for row in rows[:2]] == ["a0", "b0"]
    hanging = node(host=replace(HOST, host="node-b"), note="The NVIDIA driver has not answered for 9 s.")
    assert "node-b: The NVIDIA driver has not answered for 9 s." in text(node(gpu(0)), hanging)


def test_without_a_gpu_the_host_is_shown_with_a_note():
    rows = text(NO_GPU, width=70)
    assert rows[0] == "This machine has no NVIDIA GPU (no driver library was found)."
    assert rows[1].startswith("CPU    ━━") and rows[1].endswith("12 % of 128 cores")
    assert rows[2].endswith("31.0/251.0 GiB")
    assert text(NO_GPU, width=70, height=1) == [
        "host node-a  memory 31.0/251.0 GiB  CPU  12 %  This machine has no NVIDIA GPU"
    ]


def test_processes_come_on_demand_those_of_others_stand_out():
    shared = node(
        gpu(0, processes=(GpuProcess(7, GIB, "python3", "eve"), GpuProcess(8, 2 * GIB, "train", "ada")))
    )
    rows = body((shared,), 70, 6, UNICODE, processes=True, user="ada")
    assert ("ada  ", "text") in rows[1] and ("eve  ", "warning") in rows[2]
    assert text(EIGHT, height=6, processes=True)[-1] == "11 more lines"
    unknown = node(gpu(0, processes=None))
    assert "does not say" in text(unknown, processes=True)[1]


def test_megatrons_memory_is_that_of_the_rank_that_needs_most():
    by_rank: dict[int | None, Memory] = {
        0: Memory(1, 0, 20, {"allocated": 48465.3, "max allocated": 75078.4}),
        3: Memory(2, 3, 20, {"allocated": 48465.3, "max allocated": 70000.0}),
    }
    assert megatron_line(by_rank) == "Megatron: max allocated 73.3 GiB (rank 0)"
    assert megatron_line({None: Memory(1, None, None, {"total": 57198.2})}) == "Megatron: expects 55.9 GiB"
    assert megatron_line({}) == megatron_line(None) == ""


@pytest.mark.parametrize("width", [1, 5, 12, 20, 33, 61, 200])
@pytest.mark.parametrize("height", [0, 1, 2, 3, 9, 40])
def test_any_size_is_filled_without_overflowing_its_height(width: int, height: int):
    for snapshots in ((), (EIGHT,), (NO_GPU,), (EIGHT, NO_GPU)):
        for processes in (False, True):
            rows = body(snapshots, width, height, UNICODE, processes=processes, user="ada")
            assert len(rows) <= max(height, 1)


def test_ascii_stays_ascii():
    for snapshots in ((EIGHT,), (NO_GPU,), (node(GpuReading(0)),)):
        for height in (1, 4, 12):
            rows = body(snapshots, 60, height, ASCII, processes=False, user=None)
            assert all(part.isascii() for row in rows for part, _ in row)


def test_wide_characters_of_a_host_name_keep_the_row_in_its_width():
    wide = node(gpu(0), host=replace(HOST, host="計算機"))
    assert width_of(body((wide,), 60, 3, UNICODE, processes=False, user=None)[1]) == len(
        "host 計算機  memory 31.0/251.0 GiB  CPU  12 %"
    ) + len("計算機")


def test_a_host_with_small_changes_is_shown_as_before():
    def with_host(**fields: float | None) -> Snapshot:
        return node(host=replace(HOST, **fields))  # type: ignore[arg-type]

    calm = CalmReadings()
    assert calm.settle(NO_GPU) == NO_GPU
    assert calm.settle(with_host(cpu_percent=80.0, memory_used=34 * GIB)).host == HOST
    assert calm.settle(with_host(memory_used=40 * GIB)).host.memory_used == 40 * GIB
    assert calm.settle(with_host(cpu_percent=None)).host.cpu_percent is None
    shown = [calm.settle(with_host(cpu_percent=70.0)).host.cpu_percent for _ in range(60)]
    assert 60 < shown[-1] <= 70 and len(set(shown)) < 9  # type: ignore[operator]
    jumping = {calm.settle(with_host(cpu_percent=70.0 + 20 * (-1) ** n)).host.cpu_percent for n in range(60)}
    assert jumping == {shown[-1]}


def test_a_gpu_with_small_changes_is_shown_as_before_but_its_faults_at_once():
    calm = CalmReadings()
    calm.settle(node(gpu(0), gpu(1)))
    wavering = gpu(
        0, power=692.0, temperature=62, utilization=97, throttling=("hw thermal",), memory_used=GIB
    )
    shown = calm.settle(node(wavering, gpu(1, power=400.0))).gpus
    assert shown == (gpu(0, throttling=("hw thermal",), memory_used=GIB), gpu(1, power=400.0))


class PanelApp(App[None]):
    """Nothing but the panel; `written` collects the regions that it asked to redraw."""

    def __init__(self, snapshot: Snapshot, *, ascii_only: bool = False) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.panel = GpuPanel(ascii_only=ascii_only, user="ada")

    def compose(self) -> ComposeResult:
        yield self.panel

    def on_mount(self) -> None:
        self.panel.show([self.snapshot], {0: Memory(1, 0, 20, {"max allocated": 75078.4})})


async def test_equal_readings_write_nothing_and_one_change_writes_one_row(monkeypatch: pytest.MonkeyPatch):
    app = PanelApp(EIGHT)
    async with app.run_test(size=(70, 14)) as pilot:
        await pilot.pause()
        regions: list[Region] = []
        refresh = app.panel.refresh

        def record(*changed: Region, **options: bool) -> GpuPanel:
            regions.extend(changed)
            refresh(*changed, **options)
            return app.panel

        monkeypatch.setattr(app.panel, "refresh", record)
        app.panel.show([replace(EIGHT, time=EIGHT.time + 1)])
        assert regions == []
        warmer = (*EIGHT.gpus[:5], replace(EIGHT.gpus[5], temperature=70), *EIGHT.gpus[6:])
        app.panel.show([replace(EIGHT, gpus=warmer)])
        assert [region.height for region in regions] == [1]
        assert regions[0].y == 1 + 5  # below the frame


async def test_p_shows_the_processes_and_hides_them_again():
    app = PanelApp(EIGHT)
    async with app.run_test(size=(70, 20)) as pilot:
        app.panel.focus()
        before = [strip.text for strip in map(app.panel.render_line, range(20))]
        await pilot.press("p")
        during = [strip.text for strip in map(app.panel.render_line, range(20))]
        assert any("pid 4242" in line and "python3" in line for line in during)
        await pilot.press("p")
        assert [strip.text for strip in map(app.panel.render_line, range(20))] == before


async def test_outside_text_is_never_markup():
    hostile = node(
        gpu(0, processes=(GpuProcess(1, GIB, "[/bold][@click=app.quit]x", "[red]"),)),
        host=replace(HOST, host="[/a]"),
    )
    app = PanelApp(hostile)
    async with app.run_test(size=(80, 10), notifications=True) as pilot:
        app.panel.focus()
        await pilot.press("p")
        lines = [app.panel.render_line(y).text for y in range(10)]
        assert any("[/bold][@click=app.quit]x" in line for line in lines)
        assert "[/a]" in lines[0]


def test_eight_gpus_on_a_wide_screen(snap_compare):
    assert snap_compare(PanelApp(EIGHT), terminal_size=(70, 11))


def test_folded_on_a_small_screen(snap_compare):
    assert snap_compare(PanelApp(EIGHT), terminal_size=(50, 4))


def test_no_gpu_in_ascii(snap_compare):
    assert snap_compare(PanelApp(NO_GPU, ascii_only=True), terminal_size=(70, 6))
