"""Writing systems of a text, with literal counts."""

import pytest

from analysis.writing import scripts_used


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("", 0), ("42 + 17 = 59", 0), ("The sum is 59.", 1), ("αβγδ + x = Σ, so xyz", 1), ("小明有三个苹果", 1),
        ("日本語のテキスト", 1), ("AI模型有用, so we use it", 2), ("لدى أحمد تفاحة", 1), ("слово and word und Wörter", 2),
        ("привет שלום مرحبا नमस्ते สวัสดี 안녕하세요 你好吗 hello", 8), ("한국어 조사 with VPN", 2),
    ],
)  # fmt: skip
def test_scripts_are_counted(text, n):
    assert scripts_used(text) == n
