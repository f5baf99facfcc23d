"""Stored arguments against those of a plan: what is harmless, what needs a flag, what cannot load, by core_r0.8.0's rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkpoint_trees import torch_file

from backends.demo.arguments import read_arguments
from backends.models import presets
from backends.models.arguments import flatten, merge_arguments, without
from backends.runs.argument_values import DEMO_DEFAULTS, flag_of, given_values, planned_values, printed_values
from backends.runs.comparison import compare, needed_flags
from backends.runs.difference import same
from backends.runs.plan import RunPlan
from backends.runs.schedule_comparison import OVERRIDE, USE_CHECKPOINT, schedule_state
from backends.runs.stored_values import Stored, read_argument_block, read_stored

# The real logs are of the smoke preset with this flag.
SMOKE = (*presets.find("smoke").arguments, "--untie-embeddings-and-output-weights")
LLAMA = presets.find("llama3-8b").arguments


def plan_of(*arguments: str, processes: int = 1) -> RunPlan:
    return RunPlan("train", "megatron", arguments=arguments, processes=processes)


def stored_by(*arguments: str, distributed: bool = False, **more: Any) -> Stored:
    """A checkpoint that was written with `arguments`."""
    values = {**planned_values(arguments, "megatron"), **more}
    return Stored(values, schedule_state(values), "iter_0000100", distributed)


def verdicts(stored: Stored, *arguments: str) -> dict[str, str]:
    return {difference.flag: difference.verdict for difference in compare(stored, plan_of(*arguments))}


def changed(base: tuple[str, ...], *changes: str) -> tuple[str, ...]:
    return merge_arguments(base, changes)


def test_defaults_equal_those_that_the_real_program_prints(logs: Path) -> None:
    """The argument block of a real run of core_r0.8.0 against what the preset it was started with is taken for."""
    printed = printed_values(read_argument_block(logs / "h200-core_r0.8.0-train.log"))
    planned = planned_values(SMOKE, "megatron")
    compared = [name for name in planned if name in printed]
    assert len(compared) > 50
    differing = {
        name: (printed[name], planned[name]) for name in compared if not same(printed[name], planned[name])
    }
    assert differing == {}, differing


def test_the_demo_s_defaults_are_its_parser_s() -> None:
    parsed = vars(read_arguments([]))
    values = planned_values((), "demo")
    known = {name: parsed[name] for name in DEMO_DEFAULTS if name in parsed}
    assert len(known) > 12 and all(same(values[name], known[name]) for name in known)
    assert values["max_position_embeddings"] == parsed["max_position_embeddings"]
    assert values["ffn_hidden_size"] == parsed["ffn_hidden_size"]
    wide = ("--swiglu", "--hidden-size", "64")
    assert (
        planned_values(wide, "demo")["ffn_hidden_size"] == vars(read_arguments(list(wide)))["ffn_hidden_size"]
    )


def test_the_real_refusal_is_foreseen_in_its_own_words(logs: Path) -> None:
    before = read_argument_block(logs / "h200-core_r0.8.0-train.log")
    refused = read_argument_block(logs / "h200-core_r0.8.0-resume-refused.log")
    arguments = changed(SMOKE, "--train-iters", refused["train_iters"])
    [difference, *others] = compare(Stored(printed_values(before), None, "its log"), plan_of(*arguments))
    assert (difference.flag, difference.verdict, others) == ("--train-iters", "flag", [])
    assert "total number of weight decay iterations 6400 → 8000" in difference.message
    assert needed_flags([difference]) == {OVERRIDE: ()}
    assert verdicts(stored_by(*SMOKE), *arguments, OVERRIDE) == {"--train-iters": "harmless"}


def test_the_same_arguments_differ_in_nothing() -> None:
    for arguments in (SMOKE, LLAMA, presets.find("gpt3-7b").arguments):
        assert compare(stored_by(*arguments), plan_of(*arguments)) == ()


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        (("--hidden-size", "1024"), "--hidden-size"),
        (("--num-layers", "4"), "--num-layers"),
        (("--num-attention-heads", "4"), "--num-attention-heads"),
        (("--ffn-hidden-size", "1024"), "--ffn-hidden-size"),
        (("--kv-channels", "32"), "--kv-channels"),
        (("--swiglu",), "--swiglu"),
        (("--disable-bias-linear",), "--disable-bias-linear"),
        (("--add-qkv-bias",), "--add-qkv-bias"),
        (("--normalization", "RMSNorm"), "--normalization"),
        (("--position-embedding-type", "rope"), "--position-embedding-type"),
        (("--use-rotary-position-embeddings",), "--position-embedding-type"),
        (("--max-position-embeddings", "1024"), "--max-position-embeddings"),
        (("--make-vocab-size-divisible-by", "64"), "--make-vocab-size-divisible-by"),
        (("--tokenizer-type", "Llama2Tokenizer"), "--tokenizer-type"),
        (("--group-query-attention", "--num-query-groups", "2"), "--num-query-groups"),
        (("--tensor-model-parallel-size", "2"), "--tensor-model-parallel-size"),
        (("--pipeline-model-parallel-size", "2"), "--pipeline-model-parallel-size"),
        (("--num-experts", "8"), "--num-experts"),
        (("--use-legacy-models",), "--use-legacy-models"),
        (("--transformer-impl", "transformer_engine"), "--transformer-impl"),
        (("--use-distributed-optimizer",), "--use-distributed-optimizer"),
        (("--optimizer", "sgd"), "--optimizer"),
    ],
)  # fmt: skip
def test_a_difference_that_prevents_loading_is_refused_with_a_remedy(
    changes: tuple[str, ...], flag: str
) -> None:
    found = {d.flag: d for d in compare(stored_by(*SMOKE), plan_of(*changed(SMOKE, *changes)))}
    assert found[flag].verdict == "refused" and found[flag].message and found[flag].remedy
    problem = found[flag].as_problem()
    assert problem is not None and problem.severity == "error" and problem.field == flag


def test_a_size_that_was_given_is_not_taken_for_the_one_that_follows_from_others() -> None:
    """A run that leaves --ffn-hidden-size out makes four times the hidden size of it: other weights than these."""
    written = stored_by(*changed(SMOKE, "--ffn-hidden-size", "1024"))
    assert verdicts(written, *SMOKE) == {"--ffn-hidden-size": "refused"}
    wider = changed(SMOKE, "--hidden-size", "1024")
    assert "--ffn-hidden-size" not in verdicts(stored_by(*SMOKE), *wider), "that follows from the hidden size"


def test_the_fix_of_a_refusal_leads_back_to_what_loads() -> None:
    stored = stored_by(*SMOKE)
    arguments = changed(
        SMOKE, "--hidden-size", "1024", "--swiglu", "--disable-bias-linear", "--num-layers", "2"
    )
    for difference in compare(stored, plan_of(*arguments)):
        for flag, words in (difference.fix or {}).items():
            arguments = without(arguments, flag) if words is None else changed(arguments, flag, *words)
    assert {d.verdict for d in compare(stored, plan_of(*arguments))} <= {"harmless"}


def test_tied_weights_are_not_loaded_from_untied_ones() -> None:
    flag = "--untie-embeddings-and-output-weights"
    [difference] = compare(stored_by(*SMOKE), plan_of(*without(SMOKE, flag)))
    assert (difference.flag, difference.verdict, difference.remedy) == (flag, "refused", f"Give {flag}.")


def test_in_a_distributed_checkpoint_the_layout_may_change() -> None:
    arguments = changed(SMOKE, "--tensor-model-parallel-size", "2", "--use-dist-ckpt")
    assert verdicts(stored_by(*SMOKE, distributed=True), *arguments) == {
        "--tensor-model-parallel-size": "harmless"
    }
    rigid = stored_by(*SMOKE, "--use-distributed-optimizer", distributed=True, ckpt_fully_parallel_save=False)
    assert (
        verdicts(rigid, *arguments, "--use-distributed-optimizer")["--tensor-model-parallel-size"]
        == "refused"
    )


def test_a_distributed_checkpoint_needs_auto_detect_ckpt_format() -> None:
    differences = compare(stored_by(*SMOKE, distributed=True), plan_of(*SMOKE))
    assert needed_flags(differences) == {"--auto-detect-ckpt-format": ()}
    assert compare(stored_by(*SMOKE, distributed=True), plan_of(*SMOKE, "--auto-detect-ckpt-format")) == ()


def test_state_that_was_not_saved_is_not_loaded() -> None:
    stored = stored_by(*SMOKE, no_save_optim=True, no_save_rng=True)
    assert needed_flags(compare(stored, plan_of(*SMOKE))) == {"--no-load-optim": (), "--no-load-rng": ()}


@pytest.mark.parametrize(
    "changes",
    [
        ("--train-iters", "300"),
        ("--lr", "3e-4"),
        ("--min-lr", "0"),
        ("--lr-decay-style", "linear"),
        ("--lr-decay-iters", "500"),
        ("--lr-warmup-fraction", ".1"),
        ("--weight-decay", "0.2"),
        ("--global-batch-size", "64"),
    ],
)
def test_another_schedule_needs_a_flag(changes: tuple[str, ...]) -> None:
    differences = compare(stored_by(*SMOKE), plan_of(*changed(SMOKE, *changes)))
    assert [(d.flag, d.verdict) for d in differences] == [(changes[0], "flag")]
    arguments = changed(SMOKE, *changes, *flatten(needed_flags(differences).items()))
    assert verdicts(stored_by(*SMOKE), *arguments) == {changes[0]: "harmless"}
    kept = compare(stored_by(*SMOKE), plan_of(*changed(SMOKE, *changes), USE_CHECKPOINT))
    assert "Not taken" in kept[0].message


def test_a_schedule_counts_samples_as_get_optimizer_param_scheduler_does() -> None:
    iterations = {"train_iters": 100, "lr_decay_iters": 80, "lr_warmup_iters": 10, "global_batch_size": 32}
    steps = {"wd_incr_steps": 3200, "lr_decay_steps": 2560, "lr_warmup_steps": 320}
    assert schedule_state(iterations) == steps
    assert schedule_state({**iterations, "lr_warmup_fraction": 0.05})["lr_warmup_steps"] == 128
    samples = {"train_samples": 4000, "lr_decay_samples": 3000, "lr_warmup_samples": 200, **iterations}
    assert schedule_state(samples) == {"wd_incr_steps": 4000, "lr_decay_steps": 3000, "lr_warmup_steps": 200}


def test_a_number_written_in_another_way_is_the_same() -> None:
    assert compare(stored_by(*SMOKE), plan_of(*changed(SMOKE, "--lr", "0.0006", "--min-lr", "6e-5"))) == ()


def test_a_schedule_without_arguments_continues_as_stored() -> None:
    """After a run with --use-checkpoint-opt_param-scheduler: nobody asked for another one now."""
    values = planned_values(changed(SMOKE, "--lr", "1e-4"), "megatron")
    stored = Stored(values, schedule_state(planned_values(SMOKE, "megatron")), "iter_0000100")
    differences = compare(stored, plan_of(*changed(SMOKE, "--lr", "1e-4")))
    assert needed_flags(differences) == {USE_CHECKPOINT: ()}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (("--seed", "5"), "another order"),
        (("--data-path", "other"), "skipped"),
        (("--micro-batch-size", "4"), "The batches stay the same"),
        (("--log-interval", "1"), "Nothing in the checkpoint"),
    ],
)
def test_a_difference_without_consequences_is_harmless(changes: tuple[str, ...], word: str) -> None:
    [difference] = compare(stored_by(*SMOKE, "--data-path", "arxiv"), plan_of(*changed(SMOKE, *changes)))
    assert (difference.flag, difference.verdict) == (changes[0], "harmless") and word in difference.message
    assert difference.as_problem() is None


def test_a_change_that_loads_as_another_model_is_a_warning() -> None:
    [difference] = compare(stored_by(*LLAMA), plan_of(*changed(LLAMA, "--rotary-base", "10000")))
    problem = difference.as_problem()
    assert difference.verdict == "changes" and problem is not None and problem.severity == "warning"
    half = without(SMOKE, "--fp16")
    assert verdicts(stored_by(*SMOKE), *half, "--bf16") == {"--fp16/--bf16": "changes"}
    assert verdicts(stored_by(*SMOKE), *half) == {"--fp16/--bf16": "refused"}


def test_fine_tuning_takes_the_weights_alone() -> None:
    arguments = changed(
        SMOKE, "--finetune", "--lr", "1e-5", "--use-distributed-optimizer", "--train-iters", "50"
    )
    assert set(verdicts(stored_by(*SMOKE), *arguments).values()) == {"harmless"}
    assert verdicts(stored_by(*SMOKE), *arguments, "--hidden-size", "1024")["--hidden-size"] == "refused"


def test_flags_and_names_go_both_ways() -> None:
    assert given_values(("--lr=1e-3", "--bf16", "--disable-bias-linear", "--data-path", "1", "a")) == {
        "lr": 1e-3, "bf16": True, "add_bias_linear": False, "data_path": [1, "a"],
    }  # fmt: skip
    assert flag_of("add_bias_linear") == "--disable-bias-linear" and flag_of("hidden_size") == "--hidden-size"
    assert flag_of("override_opt_param_scheduler") == OVERRIDE


def test_stored_arguments_are_read_from_the_file_without_torch(tmp_path: Path) -> None:
    values = planned_values(SMOKE, "megatron")
    for folder, name in (("iter_0000100", "mp_rank_00/model_optim_rng.pt"), ("iter_0000200", "common.pt"),
                         ("iter_0000300", "mp_rank_00_000/model_optim_rng.pt")):  # fmt: skip
        file = tmp_path / folder / name
        file.parent.mkdir(parents=True)
        file.write_bytes(torch_file(values, scheduler=schedule_state(values)))
        stored = read_stored(tmp_path / folder, None)
        assert stored is not None and stored.source == folder and stored.distributed == (name == "common.pt")
        assert stored.values["hidden_size"] == 512 and stored.scheduler == schedule_state(values)
        file.write_bytes(b"PK\x03\x04 torn")
        assert read_stored(tmp_path / folder, None) is None
    assert read_stored(tmp_path / "nowhere", None) is None
