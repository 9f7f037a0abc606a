from analysis.report.shared_phrases import SharedPhrases
from analysis.report.viewer import MAX_TURNS, choose, read_turns, view_rollouts
from analysis.run_data import TextRow
from ragen_diag.rollout_log import rows_to_table

from . import factory


def text_row(prompt, thinking):
    return TextRow(0, "train", prompt, prompt, f"t{prompt}", "state", thinking, thinking, 0.0)


def test_phrases_of_most_prompts_are_marked_and_the_text_is_whole():
    texts = [text_row(prompt, f"first I look at the board then number {prompt} tells me") for prompt in range(6)]
    phrases = SharedPhrases([*texts, text_row(6, "something else entirely is said in this one here")])
    segments = phrases.segments("Well,  First I look at the board then number 3 tells me\n")
    assert [segment.text for segment in segments if segment.shared] == ["First I look at the board then number"]
    assert "".join(segment.text for segment in segments) == "Well,  First I look at the board then number 3 tells me\n"


def test_three_prompts_are_too_few_for_a_template():
    phrases = SharedPhrases([text_row(prompt, "the same words for every prompt here") for prompt in range(3)])
    assert not phrases
    assert [segment.shared for segment in phrases.segments("the same words for every prompt here")] == [False]


def test_what_findings_point_at_is_chosen_first_and_the_reasons_add_up():
    run = factory.run("template_collapse")
    chosen = choose(run, 10)
    assert len(chosen) == 10
    shown = [name for name, reasons in chosen.items() if "shows TC01" in reasons]
    against = [name for name, reasons in chosen.items() if "does not show TC01" in reasons]
    assert shown == list(run.findings[0].examples[:3]) and against == list(run.findings[0].counter_examples[:3])
    assert chosen[shown[0]] == ["shows TC01", "shows ZS02"]
    assert any("start of the run" in reasons or "end of the run" in reasons for reasons in choose(run, 60).values())


def test_first_turns_come_from_the_sample_with_thinking_apart():
    run = factory.run("healthy", n_steps=30)
    views = view_rollouts(run, "run-0-rollout", 20, 4_000, {})
    assert 0 < len(views) <= 20
    assert [view.step for view in views] == sorted(view.step for view in views)
    turn = views[0].turns[0]
    thinking = "".join(part.text for part in turn.thinking)
    assert thinking.startswith("The goal is") and turn.response_text == "<answer>Right</answer>"
    assert turn.env_text.startswith("You are in the")
    assert len({view.anchor for view in views}) == len(views)


def test_full_turns_come_from_the_log_and_nothing_else_is_kept():
    def row(trajectory, turn, **more):
        return {
            "run_id": "r", "split": "train", "prompt_id": "p", "trajectory_id": trajectory, "turn": turn, "n_turns": 30,
            "state_text": f"state {turn}", "response_text": f"<think>why {turn}</think>go {turn}", "thinking_text": f"why {turn}",
            **more,
        }  # fmt: skip

    rows = [row("t0", turn, turn_reward=turn / 2) for turn in range(30)]
    rows.append(row("t1", 0, response_truncated=True, format_valid=False, error="503"))
    rows.append(row("unwanted", 0))
    tables = (table for table in [rows_to_table(rows[:20]), rows_to_table(rows[20:]).drop_columns(["turn_reward"])])
    turns = read_turns(tables, ["t0", "t1"])
    assert sorted(turns) == ["t0", "t1"]
    assert len(turns["t0"]) == MAX_TURNS and [turn.turn for turn in turns["t0"][:3]] == [0, 1, 2]
    assert turns["t0"][1].reward == 0.5 and turns["t0"][1].thinking.text == "why 1"
    assert turns["t0"][1].response.text == "go 1"
    assert turns["t1"][0].marks == ["cut at the token cap", "format not followed", "error: 503"]


def test_a_megabyte_is_clipped_but_counted_and_later_contexts_keep_their_end():
    long = "a" * 1_000_000 + "END"
    row = {
        "run_id": "r",
        "split": "train",
        "prompt_id": "p",
        "trajectory_id": "t12600",
        "response_text": long,
        "prompt_text": long,
    }
    turns = read_turns([rows_to_table([{**row, "turn": 0}, {**row, "turn": 1}])], ["t12600"])
    first = turns["t12600"][0]
    assert len(first.response.text) == 4_000 and first.response.n_chars == 1_000_003
    run = factory.run("template_collapse")
    run.findings[0] = type(run.findings[0])("TC01", run.findings[0].status, "claim", examples=("t12600",))
    view = next(view for view in view_rollouts(run, "x", 10, 100, turns) if view.trajectory_id == "t12600")
    assert view.turns[0].response_text == "a" * 100 + "… (999\u202f903 characters cut)"
    assert view.turns[1].env_text.startswith("… (999\u202f903 characters cut)") and view.turns[1].env_text.endswith(
        "END"
    )
