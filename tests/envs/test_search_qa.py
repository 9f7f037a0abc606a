"""SearchQA: packaged questions, grading, files, and the HTTP service against a server that speaks the real protocol."""

import json
import threading
from contextlib import contextmanager

import pytest

from envs import fact_corpus
from envs.registry import BadOption, ServiceError, make
from envs.search_qa import normalize, token_f1

pytest.importorskip("bm25s")

from envs.retrieval import BM25Retriever, HttpRetriever, make_server


@contextmanager
def serving(passages):
    server = make_server(BM25Retriever(passages), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_every_packaged_question_needs_and_finds_two_passages():
    retriever = BM25Retriever(fact_corpus.passages())
    questions = fact_corpus.questions()
    assert len({question for question, _, _ in questions}) == len(questions) == 265
    for question, answer, hops in questions:
        assert any(answer in hit.content for hit in retriever.search(hops[-1], 3)), question
        first = retriever.search(hops[0], 1)[0].content
        assert hops[0].removesuffix(" capital") in first and normalize(answer) not in normalize(question).split()


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("The euro", "euro", 1.0),
        ("EURO!", "euro", 1.0),
        ("the Norwegian krone", "krone", 2 / 3),
        ("yes, surely", "yes", 0.0),
        ("yen", "euro", 0.0),
        ("", "euro", 0.0),
    ],
)
def test_f1(answer, gold, f1):
    assert token_f1(answer, gold) == pytest.approx(f1)


def answered(env, text):
    env.reset(seed=1)  # the currency of the country whose capital is Montevideo: Uruguayan peso
    return env.step(text)


def test_only_finish_is_paid():
    env = make("search_qa")
    assert answered(env, "finish[the uruguayan peso]")[1:3] == (1.0, True)
    assert answered(env, " FINISH [ Uruguayan Peso. ]")[1] == 1.0
    for text in (
        "Uruguayan peso",
        "The answer is Uruguayan peso",
        "finish[]",
        "search[",
        "finish[Uruguayan peso] really",
    ):
        observation, reward, terminated, _, info = answered(env, text)
        assert (reward, terminated, info["action_is_valid"]) == (0.0, False, False)
        assert "That is no action" in observation
    assert answered(env, "finish[peso]")[1] == 0.0
    assert answered(make("search_qa", f1_threshold=0.3), "finish[peso]")[1] == pytest.approx(2 / 3)
    assert answered(make("search_qa", f1_threshold=0.3), "finish[peso]")[4]["success"] is False


def test_splits_share_no_question():
    train, validation = make("search_qa"), make("search_qa:validation")
    assert not {row[0] for row in train._rows} & {row[0] for row in validation._rows}
    assert len(train._rows) + len(validation._rows) == 265 and len(validation._rows) > 15


HOTPOT = {
    "question": "Where does the maker of the Zorb live, case {n}?",
    "answer": "Ulm",
    "context": {"title": ["Zorb", "Maker"], "sentences": [["The Zorb ", "is made by Maker."], ["Maker lives in Ulm."]]},
}


def test_hotpotqa_rows_bring_their_corpus(tmp_path):
    file = tmp_path / "hotpot.json"
    rows = [{**HOTPOT, "question": HOTPOT["question"].format(n=n)} for n in range(12)]
    file.write_text(json.dumps(rows))
    env = make("search_qa", path=str(file))
    env.reset(seed=0)
    assert "Zorb: The Zorb is made by Maker." in env.step("search[Zorb]")[0]
    assert env.step("finish[ulm]")[1] == 1.0
    lists = [{**row, "context": [["Zorb", ["Other ", "text."]]]} for row in rows]
    (tmp_path / "lists.jsonl").write_text("\n".join(map(json.dumps, lists)))
    env = make("search_qa", path=str(tmp_path / "lists.jsonl"))
    env.reset(seed=0)
    assert "Zorb: Other text." in env.step("search[Zorb]")[0]


def test_bad_files(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"question": "?", "answer": "!"}\n{oops\n')
    with pytest.raises(BadOption, match=r"x\.jsonl:2: no JSON"):
        make("search_qa", path=str(file))
    file.write_text('{"query": "?"}\n')
    with pytest.raises(BadOption, match="a row has query"):
        make("search_qa", path=str(file))
    file.write_text("\n".join(f'{{"question": "{n}?", "ground_truth": ["!"]}}' for n in range(20)))
    with pytest.raises(BadOption, match="give corpus=FILE or url=SERVER"):
        make("search_qa", path=str(file))
    (tmp_path / "c.jsonl").write_text('{"id": "0", "contents": "A bang is written !."}\n')
    env = make("search_qa", path=str(file), corpus=str(tmp_path / "c.jsonl"))
    env.reset(seed=0)
    assert "A bang is written" in env.step("search[bang]")[0]


def test_client_and_server_speak_the_protocol():
    with serving(fact_corpus.passages()) as url:
        client = HttpRetriever(url)
        assert client.health() == {"status": "healthy", "corpus_size": 212, "index_type": "bm25", "index_loaded": True}
        assert client.search("Montevideo", 2) == BM25Retriever(fact_corpus.passages()).search("Montevideo", 2)
        local, remote = make("search_qa"), make("search_qa", url=url)
        for env in (local, remote):
            env.reset(seed=1)
        assert local.step("search[capital Montevideo]") == remote.step("search[capital Montevideo]")
        with pytest.raises(ServiceError, match=r"HTTP 400.*query must be text"):
            client.search(" ", 3)
        with pytest.raises(ServiceError, match="HTTP 404"):
            client._call("/other", None)


def test_a_failing_service_is_an_error_not_an_observation():
    with serving(["one passage"]) as url:
        env = make("search_qa", url=url)
        env.reset(seed=1)
    with pytest.raises(ServiceError, match="retrieve"):
        env.step("search[anything]")


@pytest.mark.parametrize("options", [{"top_k": 0}, {"split": "dev"}, {"url": "localhost:8001"}])
def test_bad_options(options):
    with pytest.raises(BadOption):
        make("search_qa", **options)
