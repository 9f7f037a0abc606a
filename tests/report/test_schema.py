import copy
import json
from importlib import resources

import jsonschema
import pytest

from analysis.result import Report
from ragen_diag.findings import Estimate

from . import factory, hostile


@pytest.fixture(scope="module")
def validator():
    schema = json.loads((resources.files("ragen_diag") / "schemas" / "report.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_kind_of_report_follows_the_schema(validator):
    for report in (factory.report(n_steps=12), Report([], []), hostile.report()):
        content = report.to_json()
        validator.validate(content)
        json.dumps(content, allow_nan=False)


def test_what_cannot_be_known_is_null(validator):
    report = factory.report("healthy", n_steps=5)
    report.runs[0].metrics["x"] = Estimate(float("nan"), (float("-inf"), 1.0), "nats", 0, 0, "")
    content = report.to_json()
    validator.validate(content)
    assert content["runs"][0]["metrics"]["x"]["value"] is None
    assert content["runs"][0]["metrics"]["x"]["ci95"] == [None, 1.0]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("runs", 0, "verdict"), "fine"),
        (("runs", 0, "findings", 0, "status"), "OK"),
        (("runs", 0, "findings", 0, "code"), "zero"),
        (("runs", 0, "findings", 0, "steps"), [1]),
        (("runs", 0, "series", "reward_mean", 0), [0.5, 1.0, None, None]),
        (("inputs", 0, "n_rollouts"), -1),
        (("inputs", 0, "n_rollouts"), None),
        (("schema_version",), 2),
        (("surprise",), 1),
    ],
)
def test_a_broken_contract_is_refused(validator, where, value):
    content = copy.deepcopy(factory.report("healthy", n_steps=5).to_json())
    target = content
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(content)
