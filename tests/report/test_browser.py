"""The report in a real browser: Debian's Chromium, opened from disk with the network blocked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analysis.report.html import write_html

from . import factory, hostile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)"),
]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
ALIKE = ["main .svg-container", ".rollout:nth-of-type(n+4)", "#curves figure:nth-of-type(n+3)"]
"""What axe leaves out: plotly's drawing, and further copies of parts it has seen (it takes seconds for each)."""
SECTIONS = ["verdict", "checks", "findings", "curves", "normal", "filter", "rollouts", "numbers", "appendix"]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write_html(factory.report("broken_pipeline", "template_collapse", n_steps=80), folder / "all.html")
    write_html(factory.report("template_collapse"), folder / "one.html")
    write_html(hostile.report(), folder / "hostile.html")
    return folder


@pytest.fixture
def visit(browser):
    """Open a report; fails the test at its end when anything was requested, thrown or logged as an error."""
    contexts, faults = [], []

    def open_page(path: Path, width=1280, ready=True, **options):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, reduced_motion="reduce", **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(f"thrown: {error}"))
        page.on(
            "console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on(
            "request",
            lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else faults.append(request.url),
        )
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        page.set_default_timeout(120_000)
        if ready:
            page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


def draw_all(page):
    """Bring every plot into view, as a reader who scrolls does, and wait until each is drawn."""
    page.evaluate(
        """async () => {
            for (const plot of document.querySelectorAll('.plot')) {
                if (plot.closest('details:not([open])')) continue;
                plot.scrollIntoView();
                while (!plot.dataset.drawn) await new Promise((done) => setTimeout(done, 20));
            }
        }"""
    )


def test_every_plot_is_drawn_offline_and_follows_the_theme(visit, reports):
    page = visit(reports / "all.html", color_scheme="light")
    page.evaluate("document.querySelectorAll('#curves details').forEach(d => { d.open = true; })")
    draw_all(page)
    plots = page.locator(".plot")
    assert plots.count() >= 22
    assert page.locator(".plot[data-drawn=yes] .main-svg").count() >= plots.count()
    colour = "document.querySelector('.plot .xtick text').style.fill"
    assert page.evaluate(colour) == "rgb(32, 36, 42)"
    page.get_by_role("button", name="Dark colours").click()
    draw_all(page)
    assert page.evaluate(colour) == "rgb(231, 233, 236)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"


def test_a_spike_of_one_step_is_in_the_drawing(visit, reports, tmp_path):
    page = visit(
        write_html(factory.report("echo_trap", n_steps=4_000, n_groups=2, group_size=2), tmp_path / "spike.html")
    )
    draw_all(page)
    highest = page.evaluate("""() => Math.max(...[...document.querySelectorAll('.plot')]
        .flatMap(plot => plot._fullData.filter(trace => trace.name === 'gradient norm before clipping').flatMap(t => [...t.y])))""")
    assert highest == 61


def test_the_keyboard_reaches_every_section(visit, reports):
    page = visit(reports / "one.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    assert page.locator(".skip").bounding_box()["y"] >= 0  # visible once focused
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Home")
    page.evaluate("document.activeElement.blur(); document.querySelector('#theme').focus()")
    for section in SECTIONS:
        while page.evaluate("document.activeElement.getAttribute('href')") != f"#{section}":
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.closest('main') === null"), (
                f"no link to {section} in the contents"
            )
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Enter")
        page.wait_for_function(
            f"() => Math.abs(document.getElementById('{section}').getBoundingClientRect().top) < innerHeight"
        )
        page.evaluate(f"document.querySelector('.contents a[href=\"#{section}\"]').focus()")


def test_a_folded_part_opens_with_the_keyboard_and_by_a_link(visit, reports):
    page = visit(reports / "one.html")
    summary = page.locator("#curves figure summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#curves figure details").first.get_attribute("open") is not None
    link = page.locator("#findings .sample a").first
    link.focus()
    page.keyboard.press("Enter")
    target = page.locator(link.get_attribute("href"))
    page.wait_for_function("node => node.open", arg=target.element_handle())


def test_the_viewer_searches_and_filters(visit, reports):
    page = visit(reports / "one.html")
    count, shown = page.locator("#viewer-count"), page.locator(".rollout:not([hidden])")
    total = page.locator(".rollout").count()
    assert count.text_content() == f"{total} of {total} rollouts in this page shown"
    page.get_by_label("Search text").fill("CAREFULLY and step by step")
    templated = shown.count()
    assert 0 < templated < total
    assert count.text_content().startswith(f"{templated} of {total}")
    page.get_by_label("Outcome").select_option("success")
    assert 0 < shown.count() < templated
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Chosen because").select_option("shows TC01")
    assert shown.count() == 3
    page.get_by_role("button", name="Open or close all").click()
    assert page.locator(".rollout[open]").count() == 3
    assert page.locator(".rollout[open] mark").first.is_visible()
    page.get_by_label("Search text").fill("no such words")
    assert shown.count() == 0
    # A link to a rollout that the filter hides shows it again.
    page.evaluate("location.hash = document.querySelector('.rollout').id")
    page.wait_for_function("() => !document.querySelector('.rollout').hidden")


def test_hostile_text_executes_nothing_and_breaks_no_layout(visit, reports):
    for width in (1280, 400):
        page = visit(reports / "hostile.html", width=width)
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        draw_all(page)
        page.get_by_label("Search text").fill("<script>")
        assert page.evaluate("window.pwned") is None
        assert page.locator("a[href^='javascript']").count() == 0
        assert page.locator("main img, main svg[onload], main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("main").inner_text().count("<script>window.pwned") > 10


@pytest.mark.parametrize("width", [1440, 400])
@pytest.mark.parametrize("name", ["all", "one"])
def test_nothing_is_wider_than_the_screen(visit, reports, name, width):
    page = visit(reports / f"{name}.html", width=width)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_javascript_the_tables_are_there_and_the_controls_are_not(visit, reports):
    page = visit(reports / "one.html", java_script_enabled=False)
    assert page.get_by_text("retrieval fell from 0.85 to 0.16").first.is_visible()
    assert page.locator("#checks table").is_visible()
    assert page.locator("#numbers table").is_visible()
    assert not page.locator("#viewer-controls").is_visible() and not page.locator("#theme").is_visible()
    page.locator("#curves figure summary").first.click()
    assert page.locator("#curves figure table").first.is_visible()
    page.locator(".rollout summary").first.click()
    assert page.locator(".rollout .turn").first.is_visible()


def test_printing_is_light_with_everything_in_it(visit, reports):
    page = visit(reports / "one.html", color_scheme="dark")
    draw_all(page)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".contents").is_visible()
    assert len(page.pdf()) > 50_000


def test_a_run_of_ten_thousand_steps_opens_in_three_seconds(visit, tmp_path):
    """Counted in processor time of the page, so that a busy machine does not fail it."""
    path = write_html(factory.report("echo_trap", n_steps=10_000, n_groups=4, group_size=4), tmp_path / "big.html")
    page = visit(tmp_path / "big.html", ready=False)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.locator(".word").wait_for()
    page.locator(".plot").first.scroll_into_view_if_needed()
    page.locator(".plot[data-drawn=yes]").first.wait_for()
    metrics = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
    assert 0 < metrics["TaskDuration"] < 3


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(visit, reports, scheme):
    page = visit(reports / "one.html", color_scheme=scheme, bypass_csp=True)
    page.evaluate(
        "document.querySelectorAll('details:not(.rollout), .rollout:nth-of-type(-n+5)').forEach(d => { d.open = true; })"
    )
    draw_all(page)
    page.add_script_tag(path=Path(__file__).parent / "axe.min.js")
    result = page.evaluate("exclude => axe.run({ exclude }, { resultTypes: ['violations'] })", ALIKE)
    serious = [
        f"{fault['id']}: {fault['help']}: {node['target']} {node['html'][:120]}"
        for fault in result["violations"] if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"][:3]
    ]  # fmt: skip
    assert not serious, "\n".join(serious)
