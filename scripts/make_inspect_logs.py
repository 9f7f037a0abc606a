"""Write the inspect_ai logs of tests/peers/data with inspect_ai itself.

inspect_ai (0.3.285) wants an fsspec older than the one pinned here, so it cannot be installed beside the tests. In a virtual
environment of its own:

    pip install inspect_ai==0.3.285
    python scripts/make_inspect_logs.py tests/peers/data

A scripted mock model answers 3 questions in 2 epochs; reasoning comes as a content part; the odd question is answered wrongly, and
the second epoch's last answer is cut off. Written once as .eval (zip, zstd members) and once as .json.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from inspect_ai import Epochs, Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant, ContentReasoning, ContentText, ModelOutput, ModelUsage, get_model
from inspect_ai.model._model_output import ChatCompletionChoice
from inspect_ai.scorer import includes


def reply(messages, tools, tool_choice, config) -> ModelOutput:
    """Answer `What is n + n?`."""
    n = int(messages[-1].text.split()[2])
    reply.calls += 1
    content = [
        ContentReasoning(reasoning=f"{n} and {n}, call {reply.calls}"),
        ContentText(text=f"It is {2 * n if n % 2 == 0 else 99}."),
    ]
    reason = "max_tokens" if reply.calls == 6 else "stop"
    choice = ChatCompletionChoice(message=ChatMessageAssistant(content=content, source="generate"), stop_reason=reason)
    # Without a usage of its own the mock model counts tokens with an encoding that it downloads.
    return ModelOutput(model="mockllm/model", choices=[choice], usage=ModelUsage(input_tokens=9, output_tokens=7))


@task
def sums(checkpoint: int) -> Task:
    """The argument names the training step, as docs/formats.md advises."""
    samples = [Sample(id=n, input=f"What is {n} + {n}?", target=str(2 * n)) for n in range(3)]
    return Task(dataset=samples, scorer=includes(), epochs=Epochs(2))


def main(destination: Path) -> None:
    destination.mkdir(parents=True, exist_ok=True)
    for log_format in ("eval", "json"):
        reply.calls = 0
        with tempfile.TemporaryDirectory() as folder:
            (log,) = eval(
                sums(checkpoint=40), model=get_model("mockllm/model", custom_outputs=reply), log_dir=folder,
                log_format=log_format, display="none", max_samples=1,
            )  # fmt: skip
            assert log.status == "success"
            (written,) = Path(folder).glob(f"*.{log_format}")
            shutil.copy(written, destination / f"inspect.{log_format}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
