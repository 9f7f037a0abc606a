import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from ragen_diag.visible_text import cut, one_line, visible


def test_control_and_direction_characters_become_visible():
    assert visible("a\x1b[31mb\x00c\x07") == "a␛[31mb␀c␇"
    assert visible("abc\u202edef\u2066") == "abc⟨U+202E⟩def⟨U+2066⟩"
    assert visible("x\x7f\x9by") == "x␡⟨U+009B⟩y"


def test_layout_and_scripts_are_left_alone():
    text = "line\n\ttab · 漢字 · עברית · 👩‍👩‍👧 · é"
    assert visible(text) == text


def test_windows_line_ends_are_no_secret_but_a_lone_return_is():
    assert visible("a\r\nb\rc") == "a\nb␍c"


def test_a_lone_surrogate_can_be_written_to_a_file():
    assert visible("\ud83d").encode("utf-8") == "⟨U+D83D⟩".encode()


def test_cut_says_how_much_is_missing():
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdef", 4) == "abcd… (2 characters cut)"
    assert cut("abcdef", 2, keep="tail") == "… (4 characters cut) ef"
    assert cut("x" * 1_000_000, 10) == "x" * 10 + "… (999\u202f990 characters cut)"


def test_one_line():
    assert one_line("a\n  b\x1b\tc") == "a b␛ c"
    assert one_line("abcdef", 4) == "abc…"


@given(st.text())
def test_nothing_that_moves_the_cursor_or_reorders_survives(text):
    shown = visible(text)
    assert all(character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs") for character in shown)
    assert not any(
        unicodedata.bidirectional(character) in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI")
        for character in shown
    )
