"""Every adapter's example from a fresh environment with its extra alone.

``python -m tests.examples [EXTRA …]`` (``make examples``) builds the wheel, makes an environment
for each extra with the wheel and that extra, and follows the page there, outside of the checkout:
its blocks, and what they print. Pages that ask a model ask one on this machine. Exits with the
number of pages that failed. An environment takes half a minute with pip's cache filled.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

from tests.proxy.test_real_programs import serving
from tests.scripted_apis import answering

ROOT = Path(__file__).parent.parent
HOW_TO = ROOT / "docs" / "how-to"
PAGES = {
    "agent-framework": "use-with-agent-framework.md",
    "amplifier": "use-with-amplifier.md",
    "anthropic": "wrap-a-client.md",
    "claude-agent-sdk": "use-with-the-claude-agent-sdk.md",
    "google-adk": "use-with-google-adk.md",
    "langchain": "use-with-langchain.md",
    "langgraph": "use-with-langgraph.md",
    "mcp": "let-the-agent-ask.md",
    "openai": "wrap-a-client.md",
    "openai-agents": "use-with-openai-agents.md",
    "pydantic-ai": "use-with-pydantic-ai.md",
    "record": "record-a-program.md",
    "strands": "use-with-strands.md",
}
"""The page of each extra that another program or framework needs."""


def main(extras: list[str]) -> int:
    unknown = sorted(set(extras) - set(PAGES))
    if unknown:
        sys.exit(f"expected extras of {', '.join(PAGES)}, found {', '.join(unknown)}")
    failed = []
    with tempfile.TemporaryDirectory(prefix="eventctx-examples-") as folder:
        options = ("-q", "--no-deps", "-w", folder, str(ROOT))
        subprocess.run([sys.executable, "-m", "pip", "wheel", *options], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        for extra in extras or PAGES:
            begun = time.monotonic()
            problem = _problem(wheel, extra, Path(folder) / extra)
            took = f"{time.monotonic() - begun:.0f} s"
            outcome = f"failed\n{problem}" if problem else "passed"
            sys.stdout.write(f"{extra:18} {PAGES[extra]:36} {took:>5}  {outcome}\n")
            sys.stdout.flush()
            if problem:
                failed.append(extra)
    return len(failed)


def _problem(wheel: Path, extra: str, folder: Path) -> str | None:
    """What went wrong, or None. An environment is removed with the folder of all."""
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    installed = subprocess.run([*install, f"{wheel}[{extra}]"], capture_output=True, text=True)
    if installed.returncode:
        return installed.stderr
    page, reader = HOW_TO / PAGES[extra], ROOT / "tests" / "pages.py"
    here = folder / "here"
    here.mkdir()
    with contextlib.ExitStack() as stack:
        # -P: the reader's own folder, the checkout's tests, is no place to import from.
        command = [str(word) for word in (python, "-P", reader, page, extra)]
        env = _environment(folder) | _models(extra, stack)
        streams: Any = {"stdin": DEVNULL, "stdout": PIPE, "stderr": STDOUT, "text": True}
        done = subprocess.run(command, cwd=here, env=env, timeout=300, **streams)
    return str(done.stdout) if done.returncode else None


def _environment(folder: Path) -> dict[str, str]:
    """A person's, who has nothing of this repository."""
    path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
    return {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8"}


def _models(extra: str, stack: contextlib.ExitStack) -> dict[str, str]:
    if extra != "claude-agent-sdk":
        return stack.enter_context(answering())
    return {
        "ANTHROPIC_BASE_URL": stack.enter_context(serving([])),
        "ANTHROPIC_API_KEY": "k",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
