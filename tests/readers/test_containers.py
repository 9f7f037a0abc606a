"""Files as they are found: compressed, torn, glued, with odd line ends. One bad record costs one record."""

import gzip
import json
import zipfile

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.readers.containers import Bad, iter_json, iter_lines, member_path, open_binary, parse_prefix, read_head
from ragen_diag.errors import BadLog

# Any text JSON can hold, U+2028, U+0085 and lone surrogates among it.
texts = st.text(st.characters(exclude_categories=()) | st.sampled_from("\u2028\x85\ud83d\r\n"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=5,
)
# Shared machines are slow: wall time is no property of the code.
PATIENT = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
records = st.lists(st.dictionaries(texts, values), min_size=1, max_size=3)


def stored(rows):
    """What JSON makes of the rows (surrogate pairs join), with lone surrogates replaced."""
    return cleaned(json.loads(json.dumps(rows)))


def cleaned(value):
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode("utf-8")
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    return {cleaned(key): cleaned(item) for key, item in value.items()} if isinstance(value, dict) else value


def read(path):
    return [record.value for record in iter_json(path)]


@PATIENT
@given(records, st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n"]), st.booleans())
def test_json_lines_come_back_whatever_the_text(tmp_path_factory, rows, escaped, newline, final_newline):
    path = tmp_path_factory.mktemp("lines") / "x.jsonl"
    escaped = escaped or any("\ud800" <= char <= "\udfff" for char in json.dumps(rows, ensure_ascii=False))
    text = newline.join(json.dumps(row, ensure_ascii=escaped) for row in rows) + (newline if final_newline else "")
    path.write_bytes(text.encode("utf-8"))
    assert read(path) == stored(rows)


@PATIENT
@given(records, st.sampled_from([None, 1, 4]))
def test_arrays_come_back(tmp_path_factory, rows, indent):
    path = tmp_path_factory.mktemp("array") / "x.json"
    path.write_text(json.dumps(rows, indent=indent))
    assert read(path) == stored(rows)


@PATIENT
@given(records, st.sampled_from(["", " ", "\n"]))
def test_glued_objects_come_back(tmp_path_factory, rows, between):
    path = tmp_path_factory.mktemp("glued") / "x.jsonl"
    rows = [{"n": index, **row} for index, row in enumerate(rows)]
    path.write_text(between.join(json.dumps(row) for row in rows))
    assert read(path) == stored(rows)


@PATIENT
@given(records)
def test_every_prefix_of_an_object_can_be_looked_at(rows):
    text = json.dumps(rows)
    for cut in range(1, len(text) + 1):
        parsed = parse_prefix(text[:cut])
        assert parsed is None or isinstance(parsed, list)
    assert parse_prefix('{"a": 1, "b": [1, 2, {"c": "x') == {"a": 1, "b": [1, 2, {}]}


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
def test_compressed_files_are_recognised_by_content(tmp_path, compress):
    path = tmp_path / "no-suffix"
    path.write_bytes(compress(b'{"a": 1}\n{"a": 2}'))
    assert read(path) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
def test_a_cut_compressed_file_keeps_its_start(tmp_path, compress):
    path = tmp_path / "cut"
    rows = [{"index": index, "text": f"{index * 7919 % 10007:x}"} for index in range(20_000)]
    whole = compress("\n".join(map(json.dumps, rows)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    found = read(path)
    good = [value for value in found if not isinstance(value, Bad)]
    assert good == rows[: len(good)]
    assert compress is zstandard.compress or isinstance(found[-1], Bad)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n \n", []),
        (b'\xef\xbb\xbf{"a": 1}', [{"a": 1}]),
        ('{"a": 1}\n{"a": 2}'.encode("utf-16"), [{"a": 1}, {"a": 2}]),
        (b'{"a": NaN}', [{"a": pytest.approx(float("nan"), nan_ok=True)}]),
        (b'{\n  "a": 1\n}', [{"a": 1}]),
        (b"[]", []),
        (b'{"a": "\\ud83d"}', [{"a": "?"}]),
    ],
)
def test_odd_files(tmp_path, content, expected):
    path = tmp_path / "x"
    path.write_bytes(content)
    assert read(path) == expected


def test_a_corrupt_line_costs_one_record_and_names_its_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n\n{"a": \n{"a": 3}\n{"a": 4')
    found = list(iter_json(path))
    assert [(record.line, isinstance(record.value, Bad)) for record in found] == [
        (1, False),
        (3, True),
        (4, False),
        (5, True),
    ]


def test_lines_are_cut_at_newline_only(tmp_path):
    path = tmp_path / "x"
    path.write_bytes("a\u2028b\u0085c\x0bd\re\r\nf".encode())
    assert list(iter_lines(path)) == [(1, "a\u2028b\u0085c\x0bd\re"), (2, "f")]


def test_a_huge_line_is_one_record(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"a": "x" * 5_000_000}) + '\n{"a": 2}')
    assert [len(str(value)) for value in read(path)] == [5_000_009, 8]
    assert len(read_head(path, 100)) == 100


def test_zip_members(tmp_path):
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/1.jsonl", '{"a": 1}')
    assert read(member_path(path, "run/1.jsonl")) == [{"a": 1}]


def test_an_encrypted_member_says_so(tmp_path):
    path = tmp_path / "secret.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("1.jsonl", "{}")
    data = bytearray(path.read_bytes())
    data[6] |= 1  # general purpose flag of the local header, then of the central directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(BadLog, match="password-protected"):
        open_binary(member_path(path, "1.jsonl"))
