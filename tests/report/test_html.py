import re
import time
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from analysis.report.html import MAX_BYTES, write_html
from analysis.result import Report
from ragen_diag.errors import InternalError, RunFolderError

from . import factory, hostile


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert write_html(factory.report(), path) == path
    return path.read_text(encoding="utf-8")


def visible_part(text):
    """The page without scripts and style: what a reader without JavaScript gets."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)


def test_sections_stand_in_the_promised_order(text):
    order = ["verdict", "checks", "findings", "curves", "normal", "filter", "rollouts", "numbers", "appendix"]
    places = [text.index(f'<section id="{name}"') for name in order]
    assert places == sorted(places)


def test_the_verdict_comes_first_in_plain_words(text):
    start = visible_part(text)
    start = start[start.index("<main") : start.index('<section id="checks"')]
    for words in ("4 runs: 1 healthy, 2 collapsed, 1 broken pipeline", "What was assumed", "What was read"):
        assert words in start
    assert "sampling temperature 1.0" in start
    assert "showing" in start and "of 12\u202f800 rollouts, chosen because" in start


def test_it_loads_nothing_from_anywhere(text):
    outside = re.sub(r'<script type="text/plain" id="plotly-gzip">.*?</script>', "", text, flags=re.S)
    assert not re.search(r"<(?:link|img|iframe|object|embed|base)\b|<script[^>]+src", outside)
    links = re.findall(r'<a\b[^>]*href="([^"]*)"', outside)
    assert all(link.startswith(("#", "https://")) for link in links)  # sources named in the explain pages
    assert "@import" not in outside and "url(" not in outside
    assert "default-src 'none'" in text


def test_reads_without_javascript(text):
    body = visible_part(text)
    for words in ("retrieval fell from 0.85 to 0.16", "warn at", "three rollouts of different prompts"):
        assert words in body
    assert body.count("Numbers of this plot") >= 40  # every drawing has its numbers as a table
    assert factory.TEMPLATE in body.replace("<mark>", "").replace("</mark>", "")
    assert "<mark>" in body  # the template is highlighted
    assert "not in this log. To check this, log tool_calls_mean" in body


def test_the_same_report_is_the_same_file(tmp_path):
    one, two = (write_html(factory.report("healthy"), tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert one == two


class Outline(HTMLParser):
    VOID = frozenset({"meta", "input", "br", "img", "link", "hr"})

    def __init__(self):
        super().__init__()
        self.headings, self.ids, self.open, self.tags, self.handlers = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.ids += [value for name, value in attrs if name == "id"]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def outline(text):
    parser = Outline()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return parser


def test_the_markup_is_well_formed_with_one_top_heading_and_unique_ids(text):
    page = outline(text)
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    assert len(page.ids) == len(set(page.ids))
    targets = re.findall(r'href="#([^"]+)"', text)
    assert targets and set(targets) <= set(page.ids)


def test_hostile_text_stays_text(tmp_path):
    page = write_html(hostile.report(), tmp_path / "report.html").read_text(encoding="utf-8")
    tree = outline(page)
    assert not tree.handlers
    assert "img" not in tree.tags and "svg" not in tree.tags and "b" not in tree.tags
    assert not re.search(r'href="(?!#|https://(arxiv\.org|github\.com|doi\.org)/)', page)
    assert len(page.encode()) < 2_500_000
    shown = visible_part(page)
    assert "&lt;script&gt;window.pwned" in shown
    assert "⟨U+202E⟩" in shown and "␛[31m" in shown and "⟨U+D83D⟩" in shown
    assert "\u202e" not in page and "\x1b" not in page
    assert re.search(r"… \([\d\u202f]+ characters cut\)", shown)
    assert "{{ 7 * 7 }}" in shown


@pytest.mark.slow
def test_ten_thousand_steps_of_128_rollouts_fit_and_keep_the_spike(tmp_path):
    n_steps = 10_000
    big = factory.report("echo_trap", n_steps=n_steps, n_groups=16, group_size=8)
    started = time.monotonic()
    path = write_html(big, tmp_path / "report.html")
    assert time.monotonic() - started < 60
    assert path.stat().st_size < MAX_BYTES
    text = path.read_text(encoding="utf-8")
    assert "Plots are thinned" in text and "longest series: 10,000 steps" in text
    # The spike of step 7500 is a row in the numbers of the gradient's plot.
    assert re.search(r'<th scope="row">7500</th>.{0,120}<td class="num">61</td>', text, flags=re.S)
    assert "of 1\u202f280\u202f000 rollouts" in text


@pytest.mark.slow
def test_forty_runs_still_fit(tmp_path):
    many = Report(inputs=[], runs=[factory.run("template_collapse", n_steps=60, seed=seed) for seed in range(40)])
    for number, run in enumerate(many.runs):
        run.name = f"run {number}"
    path = write_html(many, tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < MAX_BYTES
    assert "of 40 runs, to keep this file small" in text
    assert all(f"run {number}" in text for number in range(40))


def test_a_metrics_only_run_and_an_empty_report_have_a_page(tmp_path):
    run = factory.run("healthy", n_steps=6)
    run.data.rollouts = run.data.rollouts.iloc[:0]
    run.data.texts, run.data.cross_scores, run.filter, run.data.config = [], [], None, None
    run.metrics = {}
    text = write_html(Report([], [run]), tmp_path / "metrics.html").read_text(encoding="utf-8")
    assert "No rollouts to show" in text and "no recommendation" in text and "carries no configuration" in text
    assert "0 runs: nothing to judge" in write_html(Report([], []), tmp_path / "none.html").read_text(encoding="utf-8")


def test_infinities_and_missing_values_are_not_drawn_as_numbers(tmp_path):
    run = factory.run("healthy", n_steps=30)
    values = np.linspace(1, 2, 30)
    values[[3, 10]] = [np.nan, np.inf]
    run.data.series["grad_norm"] = pd.Series(values, index=range(30))
    text = write_html(Report([], [run]), tmp_path / "report.html").read_text(encoding="utf-8")
    assert ">∞<" in text and ">unknown<" in text
    assert "NaN" not in visible_part(text) and ">nan<" not in text


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunFolderError, match="cannot write the report"):
        write_html(factory.report("healthy", n_steps=5), tmp_path / "file" / "report.html")


def test_what_cannot_fit_is_an_error_not_a_giant(tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.report.html.MAX_BYTES", 100_000)
    with pytest.raises(InternalError, match="does not fit"):
        write_html(factory.report("healthy", n_steps=5), tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
