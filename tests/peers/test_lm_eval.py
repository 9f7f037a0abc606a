"""lm-evaluation-harness evaluates a scripted model on a local task and writes its own samples file."""

import json

import pytest

from analysis.readers.discover import discover
from tests.readers.conftest import counts, rows_of

TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n\\n"], max_gen_toks: 64, do_sample: true, temperature: 0.7}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
filter_list: [{{name: answer, filter: [{{function: regex, regex_pattern: "answer is (\\\\d+)"}}, {{function: take_first}}]}}]
metadata: {{version: 1.0}}
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """Folder of an evaluation of 6 questions, of which the model gets the even ones right."""
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class Adder(LM):
        def generate_until(self, requests, disable_tqdm=False):
            questions = [int(request.arguments[0].split()[2]) for request in requests]
            return [f"<think>{n} and {n}\u2028</think>The answer is {2 * n if n % 2 == 0 else 99}" for n in questions]

        def loglikelihood(self, requests, disable_tqdm=False):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    folder = tmp_path_factory.mktemp("lm_eval")
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(6)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = folder / "tasks"
    tasks.mkdir()
    (tasks / "sums.yaml").write_text(TASK.format(data=folder / "data.jsonl"))
    tracker = EvaluationTracker(output_path=str(folder / "out"))
    results = lm_eval.simple_evaluate(
        model=Adder(),
        tasks=["sums"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        log_samples=True,
        evaluation_tracker=tracker,
        bootstrap_iters=0,
    )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    tracker.save_results_samples(task_name="sums", samples=samples["sums"])
    return folder / "out"


def test_its_samples_are_read_back(logged):
    (source,) = discover([logged])
    assert source.format == "lm_eval"
    assert counts(source) == (6, 0, 6, 6, 0.5, 0, 0)
    rows = sorted(rows_of(source), key=lambda row: row["prompt_text"])
    assert [row["prompt_text"] for row in rows] == [f"What is {n} + {n}?" for n in range(6)]
    assert [row["return_"] for row in rows] == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    assert rows[3]["response_text"] == "<think>3 and 3\u2028</think>The answer is 99"
    assert {row["reward_source"] for row in rows} == {"exact_match"}
    assert rows[0]["temperature"] == pytest.approx(0.7)
    assert rows[0]["max_response_tokens"] == 64
