"""Figures hold what the run holds. plotly's Python objects check every property against plotly.js' own schema."""

import base64
import json

import numpy as np
import pytest
from plotly.graph_objects import Figure

from analysis.report.figures import run_plots
from analysis.report.finding_plot import finding_plot
from analysis.report.maps import fit_by_prompt
from ragen_diag.findings import Finding, Status

from . import factory


def unpack(packed):
    values = np.frombuffer(base64.b64decode(packed["bdata"]), dtype=packed["dtype"])
    return values.reshape([int(part) for part in packed["shape"].split(",")]) if "shape" in packed else values


def named(plots, title):
    return next(plot for plot in plots if plot.title.startswith(title))


@pytest.fixture(scope="module")
def trap():
    return factory.run("echo_trap")


@pytest.mark.parametrize("kind", factory.KINDS)
def test_every_figure_is_valid_plotly(kind):
    run = factory.run(kind)
    plots = [*run_plots(run, 600), *filter(None, (finding_plot(run, finding, 600) for finding in run.findings))]
    drawn = [plot for plot in plots if plot.figure_json]
    assert len(drawn) >= 11
    for plot in drawn:
        content = json.loads(plot.figure_json)
        Figure(content)  # raises ValueError on a property that plotly.js does not know
        assert plot.title and plot.rows and len(plot.headers) == len(plot.rows[0])


def test_a_run_without_anything_says_what_to_log():
    run = factory.run("healthy", n_steps=4)
    run.series.clear()
    run.data.series.clear()
    run.data.cross_scores.clear()
    run.data.rollouts = run.data.rollouts.iloc[:0]
    plots = run_plots(run, 600)
    assert len(plots) == 11
    assert all(plot.figure_json is None and plot.missing for plot in plots)


def test_the_spike_is_drawn_at_its_height_and_marked(trap):
    plot = named(run_plots(trap, 60), "KL and gradient norm")
    gradient = json.loads(plot.figure_json)["data"][-1]
    assert len(unpack(gradient["x"])) <= 60
    assert unpack(gradient["y"]).max() == 61.0
    assert "of 200 steps drawn" in plot.note
    timeline = named(run_plots(trap, 60), "Order of events")
    texts = [note["text"] for note in json.loads(timeline.figure_json)["layout"]["annotations"]]
    assert {"turned at step 92", "turned at step 104", "fell at step 130", "first spike, step 150"} <= set(texts)


def test_the_regime_path_ends_where_the_run_ends():
    plot = named(run_plots(factory.run("template_collapse"), 600), "Regime plane")
    way = json.loads(plot.figure_json)["data"][0]
    assert way["customdata"][0] == 0 and way["customdata"][-1] == 199
    assert unpack(way["x"])[-1] == pytest.approx(0.95, abs=0.05)  # entropy kept
    assert unpack(way["y"])[-1] < 0.15  # input dependence lost


def test_a_findings_plot_has_its_limits_and_its_window(trap):
    run = factory.run("template_collapse")
    tied = next(finding for finding in run.findings if finding.code == "ZS02")
    layout = json.loads(finding_plot(run, tied, 600).figure_json)["layout"]
    levels = sorted(shape["y0"] for shape in layout["shapes"] if shape["type"] == "line")
    assert levels == [0.5, 0.8]
    window = next(shape for shape in layout["shapes"] if shape["type"] == "rect")
    assert (window["x0"], window["x1"]) == (120, 199)
    # A limit that multiplies the run's own level: 10 times the median norm of 0.85.
    spike = next(finding for finding in trap.findings if finding.code == "GN01")
    layout = json.loads(finding_plot(trap, spike, 600).figure_json)["layout"]
    assert [shape["y0"] for shape in layout["shapes"] if shape["type"] == "line"] == [8.5]


def test_a_finding_without_a_series_has_no_plot(trap):
    assert finding_plot(trap, Finding("PD01", Status.WARN, "padding rows"), 600) is None
    named_series = Finding("XX01", Status.WARN, "of a plug-in", {"series": "kl_nats"})
    assert "KL to the reference" in finding_plot(trap, named_series, 600).figure_json


def test_labels_cannot_smuggle_markup_into_a_figure():
    run = factory.run("healthy", n_steps=20)
    cross = run.data.cross_scores[-1]
    evil = "</script><img>\u202e"
    object.__setattr__(cross, "prompt_ids_N", (evil, *cross.prompt_ids_N[1:]))
    heat = named(run_plots(run, 600), "Whose reasoning")
    assert "<" not in heat.figure_json
    assert "\\u202e" not in heat.figure_json


def test_fit_by_prompt_is_the_row_mean_free_score_per_token():
    matrix = factory.run("healthy", n_steps=4).data.cross_scores[0]
    fit, columns = fit_by_prompt(matrix)
    per_token = matrix.logprob_sum_RN / matrix.tokens_R[:, None]
    row = np.mean([per_token[r] for r in range(len(per_token)) if matrix.column_R[r] == columns[3]], axis=0)
    np.testing.assert_allclose(fit[3], (row - row.mean())[columns])
    assert np.argmax(fit[3]) == 3
