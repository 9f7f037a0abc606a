from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.run_data import TextRow
from analysis.text import UNITS, measure_text, templates
from analysis.words import Words, tokenize
from tests.planted.worlds import World


def row(prompt: int, thinking: str, response: str = "") -> TextRow:
    return TextRow(1, "train", prompt, prompt, f"p{prompt}", "", thinking, response, 0.0)


def drawn(world: World, n: int = 48, k: int = 8, seed: int = 0):
    return world.draw(n, k, np.random.default_rng(seed))


@pytest.mark.parametrize("copy_prob", [0.0, 0.5, 0.9])
def test_the_classifier_bound_stays_below_the_planted_information(copy_prob):
    batch = drawn(World(copy_prob=copy_prob))
    found = measure_text(batch.texts())
    bound = found["text_mi_lower_nats"]
    assert bound.ci95[0] <= batch.batch_mi_nats() + 0.02
    assert (
        found["text_retrieval_accuracy"].ci95[0]
        <= found["text_retrieval_accuracy"].value
        <= found["text_retrieval_accuracy"].ci95[1]
    )
    if copy_prob == 0.9:
        assert bound.ci95[0] > 1.5
        assert found["text_retrieval_above_chance"].ci95[0] > 0.4
    if copy_prob == 0.0:
        assert abs(bound.value) < 0.05
        assert found["text_retrieval_accuracy"].ci95[0] <= found["text_retrieval_chance"].value


def test_a_template_shows_as_cross_prompt_share_and_is_quoted():
    healthy, collapsed = World(copy_prob=0.9), World(copy_prob=0.9, template_share=1.0)
    texts = drawn(collapsed).texts()
    quoted = templates(texts)
    assert quoted[0].text.startswith("i should think step by step before i act, perhaps")
    assert quoted[0].n_words >= 10
    assert 0.5 <= quoted[0].share_of_prompts <= 1.0
    assert [t.n_words for t in quoted] == sorted((t.n_words for t in quoted), reverse=True)
    assert not any(a.text in b.text for a in quoted for b in quoted if a is not b)
    found, before = measure_text(texts), measure_text(drawn(healthy).texts())
    # Within-prompt diversity rises while the prompt vanishes: entropy alone would call this healthy.
    assert found["within_prompt_diversity"].ci95[0] > before["within_prompt_diversity"].ci95[1]
    assert found["cross_prompt_jaccard"].value == pytest.approx(found["within_prompt_jaccard"].value, abs=0.05)


def test_exact_values_on_four_texts():
    texts = [row(0, "go up now"), row(0, "go up now"), row(1, "go down"), row(1, "go left")]
    found = measure_text(texts)
    assert found["duplicate_share"].value == pytest.approx((0.5 + 0.0) / 2)
    assert found["distinct_1"].value == pytest.approx((3 / 6 + 3 / 4) / 2)
    assert found["distinct_2"].value == pytest.approx((2 / 4 + 2 / 2) / 2)
    assert found["within_prompt_jaccard"].value == pytest.approx((1.0 + 0.0) / 2)
    assert found["within_prompt_diversity"].value == pytest.approx(0.5)
    assert found["cross_prompt_template_share"].value is None  # two prompts are no "most prompts"
    assert found["text_prompt_entropy_nats"].value == pytest.approx(np.log(2))


def test_loops_and_broken_characters():
    looped = measure_text([row(p, "a b c d " * 10) for p in range(4) for _ in range(2)])
    assert looped["repeated_4gram_share"].value == pytest.approx(1 - 4 / 37)
    broken = measure_text([row(p, "ab\ufffd\ud800\x00 \n") for p in range(4) for _ in range(2)])
    assert broken["garbage_char_share"].value == pytest.approx(3 / 7)


def test_every_awkward_sample_gives_estimates_or_reasons():
    samples = {
        "nothing": [],
        "no thinking": [row(p, "", "answer text here") for p in range(6) for _ in range(2)],
        "no text at all": [row(p, "") for p in range(6)],
        "one prompt": [row(0, f"thought {i}") for i in range(8)],
        "one rollout each": [row(p, f"thought {p}") for p in range(40)],
        "one word": [row(p, "x") for p in range(8) for _ in range(2)],
        "marks only": [row(p, "!!") for p in range(8) for _ in range(2)],
        "mixed scripts": [row(p, "思考 первый ありがとう mañana 생각") for p in range(8) for _ in range(2)],
        "32k words": [row(p, "word " * 32_000) for p in range(4) for _ in range(2)],
    }
    for name, texts in samples.items():
        found = measure_text(texts)
        assert set(found) == set(UNITS), name
        for estimate in found.values():
            assert estimate.method
            if estimate.value is not None and estimate.ci95 is not None:
                assert estimate.ci95[0] <= estimate.ci95[1]
        assert isinstance(templates(texts), list)
    assert measure_text(samples["nothing"])["distinct_1"].value is None
    assert "responses, 12 of 12 texts" in measure_text(samples["no thinking"])["distinct_1"].method
    assert (
        "needs two prompts with two rollouts" in measure_text(samples["one rollout each"])["text_mi_lower_nats"].method
    )


def test_bounded_and_fast_and_seeded():
    texts = drawn(World(copy_prob=0.5), n=200, k=8).texts()
    measure_text(texts[:64])  # imports
    start = time.process_time()
    found = measure_text(texts, seed=3)
    assert time.process_time() - start < 4.0  # under 2 s on a free core
    assert "512 of 1600 texts" in found["distinct_1"].method
    assert found == measure_text(texts, seed=3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(alphabet="ab c.", max_size=30), min_size=1, max_size=6), st.integers(1, 4))
def test_ngram_codes_equal_tuples(texts, n):
    words = Words.of([tokenize(text) for text in texts])
    for ids, codes in zip(words.ids, words.ngrams(n), strict=True):
        tuples = [ids[i : i + n] for i in range(len(ids) - n + 1)]
        assert len(codes) == len(tuples)
        assert len(np.unique(codes)) == len(set(tuples))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab ", min_size=1, max_size=20), min_size=2, max_size=8))
def test_common_ngrams_equal_a_count_by_hand(texts):
    tokens = [tokenize(text) for text in texts]
    words, prompts = Words.of(tokens), np.arange(len(texts)) // 2
    holders: dict[tuple[str, ...], set[int]] = {}
    for text, prompt in zip(tokens, prompts.tolist(), strict=True):
        for i in range(len(text) - 1):
            holders.setdefault(tuple(text[i : i + 2]), set()).add(prompt)
    flags = words.common_ngrams(prompts, 2, 2)
    for text, flag in zip(tokens, flags, strict=True):
        assert flag.tolist() == [len(holders[tuple(text[i : i + 2])]) >= 2 for i in range(len(text) - 1)]


def test_covered_words_and_runs():
    words = Words.of([tokenize("a b c d x y z")])
    flags = np.array([True, False, False, False, True])  # 3-grams abc .. xyz
    assert words.covered(0, flags, 3) == pytest.approx(6 / 7)
    assert [words.spell(run) for run in words.runs(0, flags, 3)] == ["a b c", "x y z"]
